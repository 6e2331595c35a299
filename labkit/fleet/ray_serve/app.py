"""Several replicas behind one OpenAI endpoint, on Ray Serve.

`python3 -m labkit serve --replicas 2` starts a cluster of its own on this machine (`local`).
`build` makes the same application for a cluster that is there: `serve deploy` and KubeRay name it
in their files (`deploy/`).

    client → Ray's HTTP proxy → front (tokens, router) → one of the replicas → its engine process
"""

import io
from argparse import Namespace
from contextlib import redirect_stderr

from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig

from labkit.fleet.ray_serve.front import Prompts, create_front
from labkit.fleet.ray_serve.passing import Replicas
from labkit.fleet.ray_serve.replica import replica_class
from labkit.serving import options as serve_options
from labkit.serving.guards import Guards

BLOCK_SIZE = 16  # of the engine, when no --block-size is given
FRONT_CPUS = 0.1  # of those that Ray counts; it reserves them, and limits nothing


@serve.deployment(name="front", max_ongoing_requests=10_000)
@serve.ingress()
class Front:
    """The one place where requests come in. It computes nothing: more fronts are seldom needed,
    and each knows only of the prefixes that it has sent itself."""

    def __init__(self, replicas, options: Namespace):
        self.replicas, self.options = Replicas(replicas), options

    async def drain(self, timeout: float) -> None:
        """Called through Ray when the server is to end."""
        await self.replicas.drain(timeout)

    def __serve_build_asgi_app__(self):
        options = self.options
        prompts = Prompts(options.models, options.block_size or BLOCK_SIZE)
        app = create_front(self.replicas, prompts)
        return Guards(app, options.api_key, options.local_only, options.write_timeout)


def build(args: dict) -> serve.Application:
    """The application of a config file: `args` are options of `serve` by their long names.

        {"model": "smollm2-135m", "replicas": 2, "max-replicas": 4, "router": "prefix"}

    `cpus` and `gpus` are what Ray reserves for each replica. Raises ValueError.
    """
    args = dict(args)
    if wrong := {"host", "port"} & args.keys():
        raise ValueError(f"args has {', '.join(sorted(wrong))}; that goes into http_options")
    resources = {"num_cpus": args.pop("cpus", 1), "num_gpus": args.pop("gpus", 0)}
    argv = [word for name, value in args.items() for word in words(name, value)]
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            options = serve_options.parse(["--replicas", "1", *argv])
    except SystemExit:
        raise ValueError(f"args of {__name__}:build: {said.getvalue().strip()}") from None
    options.local_only = False  # it is asked by the name of a service
    return application(options, resources)


def words(name: str, value) -> list[str]:
    """An option as it would stand on a command line."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    values = value if isinstance(value, list) else [value]
    return [word for one in values for word in (f"--{option}", str(one))]


def application(options: Namespace, resources: dict) -> serve.Application:
    """The front and the replicas, by the options of `serve`. `resources` is what Ray reserves
    for each replica."""
    most = options.max_num_seqs or 64
    replicas = serve.deployment(replica_class(options.models_each)).options(
        name="replica",
        max_ongoing_requests=most + options.max_queued_requests + 100,  # refusing is labkit's
        ray_actor_options=resources,
        request_router_config=RequestRouterConfig(
            request_router_class="labkit.fleet.ray_serve.routers.ByPolicy",
            request_router_kwargs={"policy": options.router, "full": most},
        ),
        health_check_period_s=2, health_check_timeout_s=10,
        graceful_shutdown_timeout_s=options.drain_timeout, graceful_shutdown_wait_loop_s=0.2,
        **number(options),
    )  # fmt: skip
    front = Front.options(ray_actor_options={"num_cpus": FRONT_CPUS})
    return front.bind(replicas.bind(options), options)


def number(options: Namespace) -> dict:
    """How many replicas: always so many, or as many as the load needs."""
    if options.max_replicas == options.replicas:
        return {"num_replicas": options.replicas}
    policy = AutoscalingPolicy(
        policy_function="labkit.fleet.ray_serve.routers:ByLoad",
        policy_kwargs={"requests_each": options.requests_each},
    )
    return {
        "autoscaling_config": AutoscalingConfig(
            min_replicas=options.replicas, initial_replicas=options.replicas,
            max_replicas=options.max_replicas, policy=policy,
            metrics_interval_s=1, look_back_period_s=5, upscale_delay_s=2, downscale_delay_s=60,
        )
    }  # fmt: skip
