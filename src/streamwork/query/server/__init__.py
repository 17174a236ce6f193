"""The server of queryable state: `query.open` over HTTP.

`followed` follows the jobs of a root, `asked` reads requests, `encoding` writes answers, `routes` connects them,
`openapi` describes them.
"""
