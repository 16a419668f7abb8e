"""Questions about units within owners, whom nobody needs to trust: groups compared, columns associated."""
