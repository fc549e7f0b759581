"""Read the state of a live cluster. Rules and the engine import only `webhook.capacity.view`."""

import sys
from importlib.util import find_spec, module_from_spec

# kubernetes/__init__.py imports the synchronous client, which takes 7 MB. `kubernetes.aio` only needs the package.
if "kubernetes" not in sys.modules and (_package := find_spec("kubernetes")) is not None:
    sys.modules["kubernetes"] = module_from_spec(_package)
