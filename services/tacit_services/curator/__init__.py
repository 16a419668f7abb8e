"""The curator: a trusted service that holds several owners' data and plays their part in studies."""
