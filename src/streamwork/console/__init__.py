"""The console: web pages about the jobs of a root, and the JSON behind them.

`application` has the server, `routes` the list of its JSON routes (`reads`, `actions`), `events` and `poller` what changes,
`pages` the files in `static/`. All figures are read models of `observe`; the state browser is `query.server`. Nothing here prints.
"""
