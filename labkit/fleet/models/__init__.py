"""`serve` with several models: one OpenAI endpoint, an engine process for each model in memory.

`app` pins a model for as long as a request needs it; `labkit.fleet.model_cache` decides who leaves.
The routes of each model are those of `labkit.serving`.
"""
