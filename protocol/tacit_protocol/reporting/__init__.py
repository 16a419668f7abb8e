"""How a verdict is shown: sentences, charts, methods texts and one-page reports, the same from every surface.

Everything here is made of what was published already: a study, its releases and its verdict. Nothing here
decides what leaves an owner; whoever audits that need not read on.
"""
