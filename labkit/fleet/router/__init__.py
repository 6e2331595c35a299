"""The router over HTTP, in front of any OpenAI endpoints: `python3 -m labkit route`.

`app` has the routes, `proxy` passes requests on and tries again, `backends` chooses by a policy of
`labkit.fleet.routing`. It loads no torch; nothing but the command, benchmarks and tests comes in.
"""
