"""Replicas on Ray Serve: `serve --replicas N` on this machine, `deploy/` for a cluster.

`app` builds the application, `front` has the routes, `replica` holds an engine, `routers` lets the
policies of `labkit.fleet.routing` and `scaling` decide. Ray is an extra; only here is it imported.
"""
