"""What every HTTP server of Streamwork shares: the token of a root, the checks of a request, bounded connections, typed errors.

`access` has token and address, `guard` decides who may ask, `session` stands for the token in a browser, `application` is the
frame around routes, `server` runs it. Nothing here knows the questions.
"""
