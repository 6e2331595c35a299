"""What `serve` can be told of several replicas. Without Ray, which may not be there yet."""

from argparse import Namespace

ROUTERS = ("least-loaded", "power-of-two", "prefix", "round-robin", "session")  # of fleet.routing
REQUESTS_EACH = 8.0
NEEDED = ("max_replicas", "router", "requests_each", "models_each")  # they need --replicas
OF_ONE = ("model_memory", "model_wait", "mine")  # they don't go with it


def add_replicas(group, count, above_zero) -> None:
    """The options; `count` and `above_zero` read numbers."""
    group.add_argument(
        "--replicas", type=count, metavar="N",
        help="so many engines behind one address; Ray is installed when first asked for",
    )  # fmt: skip
    group.add_argument(
        "--max-replicas", type=count, metavar="N",
        help="up to so many when requests or KV memory need them (default: as --replicas)",
    )  # fmt: skip
    group.add_argument(
        "--router", choices=ROUTERS, metavar="POLICY",
        help=f"who gets a request: {', '.join(ROUTERS)} (default: prefix)",
    )  # fmt: skip
    group.add_argument(
        "--requests-each", type=above_zero, metavar="X",
        help="of a replica that is as busy as it should be; above it one more (default: 8)",
    )  # fmt: skip
    group.add_argument(
        "--models-each", type=count, metavar="N",
        help="of several models so many in a replica at once (default: all)",
    )  # fmt: skip


def check_replicas(parser, options: Namespace) -> None:
    """Refuses what contradicts itself; fills in the defaults. After `name_models`."""
    given = [name for name in NEEDED if getattr(options, name) is not None]
    if options.replicas is None:
        if given:
            parser.error(f"{option(given[0])} is of several replicas; add --replicas N")
        return
    for name in OF_ONE:
        if getattr(options, name):
            parser.error(f"{option(name)} is of one server; leave it out, or --replicas")
    options.max_replicas = options.max_replicas or options.replicas
    if options.max_replicas < options.replicas:
        told = f"--max-replicas {options.max_replicas} is less than --replicas {options.replicas}"
        parser.error(f"{told}; raise it, or leave it out")
    if options.requests_each and options.max_replicas == options.replicas:
        parser.error("--requests-each decides when there are more replicas; add --max-replicas N")
    options.models_each = options.models_each or len(options.models)
    if options.models_each > len(options.models):
        parser.error(
            f"--models-each is {options.models_each} and --model is there {len(options.models)} "
            "times; lower the one, or add the other"
        )
    options.router = options.router or "prefix"
    options.requests_each = options.requests_each or REQUESTS_EACH


def option(name: str) -> str:
    return "--" + name.replace("_", "-")
