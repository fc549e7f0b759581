from __future__ import annotations
from tests.controlplane.objects import pod


def test_x(webhook, namespace, kubectl):
    made = pod("a")
    made["metadata"]["labels"] = {"spotgate.dev/capacity": "spot"}
    out = webhook.try_out(made, f"--namespace={namespace}")
    print(out["spec"])
    made["metadata"]["labels"] = {"coreweave.com/a": "spot"}
    import json
    r = kubectl.run("create", f"--namespace={namespace}", "--filename=-", documents=json.dumps(made))
    print(r)
    print(webhook.metrics())
    print(webhook.process.tail(200))
    assert 0
