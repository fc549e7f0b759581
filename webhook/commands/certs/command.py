"""Show, check, and rotate the certificates of an installation: ``spotgate certs``.

Show, check, or rotate the certificates of an installation.

Reads the Secret with the served certificate, and the caBundles of the webhook configurations. `check` prints
only problems. `rotate` puts a new CA into the Secret of self-managed certificates, and waits until
all replicas use it. Ten minutes later, they remove the old CA from the caBundles.

examples:
  %(prog)s show
  %(prog)s check --within 14
  %(prog)s rotate

exit codes:
  0  the served certificates are trusted for longer than --within; rotate: done
  1  there are problems; rotate: not done within --timeout, but the replicas continue
  2  the cluster can't be read; rotate: spotgate doesn't manage the Secret
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from webhook.base.exits import FINE, FOUND, CannotJudgeError
from webhook.base.terminal import Line, as_json, complain, counted, show
from webhook.cluster.connection import Connection, run_on_cluster
from webhook.commands.shared.flags import add_connection, add_format, object_name, options_of
from webhook.commands.shared.help import help_of
from webhook.rules.context import utc_now

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Sequence

    from webhook.cluster.api import Api
    from webhook.commands.shared.certificates import Item

DESCRIPTION, EPILOG = help_of(__doc__)

_PAUSE: Final = 1.0
"""Seconds between two checks of a rotation's progress."""


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    parser.add_argument("action", choices=("show", "check", "rotate"), help="what to do")
    add_connection(parser)
    parser.add_argument(
        "--secret",
        metavar="NAMESPACE/NAME",
        type=object_name,
        default="spotgate-system/spotgate-certificates",
        help="the Secret of the certificate; default: %(default)s",
    )
    within = "report certificates that expire within DAYS; default: %(default)s"
    parser.add_argument("--within", metavar="DAYS", type=int, default=7, help=within)
    waits = "time limit of `rotate`; default: %(default)s"
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=120, help=waits)
    add_format(parser)


@dataclass(frozen=True, slots=True)
class CertsOptions(Connection):
    """The parsed flags."""

    action: str
    secret: tuple[str, str]
    within: int
    timeout: float
    output: str


def run(namespace: Namespace) -> int:
    """Run the requested action."""
    options = options_of(CertsOptions, namespace)
    act = _rotate if options.action == "rotate" else _show
    return run_on_cluster("certs", options, lambda api: act(api, options))


async def _show(api: Api, options: CertsOptions) -> int:
    from webhook.commands.shared.certificates import judge, read_certificates

    now = utc_now()
    certificates = await read_certificates(api, *options.secret, now=now)
    items = [_ending(item, now, options.within) for item in judge(certificates, now=now)]
    problems = [item for item in items if item.problem]
    shown = items if options.action == "show" else problems
    if options.output == "json":
        print(as_json({"selfManaged": certificates.self_managed, "items": shown}))
    else:
        show(_lines(shown, now))
    return FOUND if problems else FINE


def _ending(item: Item, now: datetime, days: int) -> Item:
    """Return the item, with a problem if it expires within this number of days."""
    if item.problem or item.expires is None or item.expires - now > timedelta(days=days):
        return item
    problem = f"it expires in {max((item.expires - now).days, 0)} days"
    fix = "for replicas with --tls-secret, see their log; otherwise, renew it at its issuer"
    return replace(item, problem=problem, fix=fix)


def _lines(items: Sequence[Item], now: datetime) -> Iterator[Line]:
    if not items:
        yield [("the served certificates are trusted", "")]
    width = max((len(item.what) for item in items), default=0)
    for item in items:
        end = f"until {item.expires:%Y-%m-%d} ({(item.expires - now).days} days)  " if item.expires else ""
        yield [(f"{item.what:{width}}  ", "bold"), (end, ""), (item.detail, "")]
        if item.problem:
            yield [("  problem: ", "red"), (item.problem, "")]
            yield [("  fix: ", "green"), (item.fix, "")]


async def _rotate(api: Api, options: CertsOptions) -> int:
    """Store a new CA and a certificate that it signed, and wait until the replicas serve it."""
    from certs.rotation import issue
    from webhook.cluster.installation import write_secret
    from webhook.commands.shared.certificates import READ_SECONDS, read_certificates

    certificates = await read_certificates(api, *options.secret, now=utc_now())
    if not certificates.self_managed or not certificates.names:
        raise CannotJudgeError(
            f"spotgate certs: Secret {'/'.join(options.secret)} has no CA of spotgate: there is nothing to rotate; "
            "renew the certificate at its issuer (cert-manager: `cmctl renew`)"
        )
    issued = issue(certificates.names, now=utc_now())
    await write_secret(api, *options.secret, issued.to_data(), READ_SECONDS, certificates.secret.resource_version)
    replicas = certificates.replicas
    print("A new CA is in the Secret. The replicas add it to the caBundles, then serve certificates that it signed.")
    try:
        async with asyncio.timeout(options.timeout):
            while True:
                replicas = (await read_certificates(api, *options.secret, now=utc_now())).replicas
                if replicas and all(replicas.values()):
                    break
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        late = [name for name, current in replicas.items() if not current]
        complain(
            f"spotgate certs: after {options.timeout:.0f} s, these replicas don't serve it yet: "
            f"{', '.join(late) or 'all, or their state is unknown'}; the replicas continue; see their log"
        )
        return FOUND
    print(f"{counted(len(replicas), 'replica')} serve it. The old CA leaves the caBundles in ten minutes.")
    return FINE
