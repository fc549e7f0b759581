"""Renewal times, and trust in the served leaf at every step of a rotation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import BACKDATE, LEAF_LIFETIME, KeyPair
from certs.rotation import Issued, end_of_trust, identifier_of, issue, renew, signer_of, trusting, trusts_only
from certs.verify import CertificateProblem, verify, verify_chain

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NAMES = ("spotgate.spotgate-system.svc",)
ISSUED = issue(NAMES, now=NOW)
OTHER = issue(NAMES, now=NOW)
DAY = timedelta(days=1)


def test_an_issued_pair_is_served_and_stored() -> None:
    verify(ISSUED.leaf, now=NOW, names=NAMES, ca_pem=ISSUED.authority.certificate_pem)
    assert Issued.from_data(ISSUED.to_data(), now=NOW) == ISSUED
    assert signer_of(ISSUED.leaf.certificate_pem) == identifier_of(ISSUED.authority)
    assert signer_of(OTHER.leaf.certificate_pem) != identifier_of(ISSUED.authority)


@pytest.mark.parametrize(
    ("after", "leaf", "authority"),
    [
        (timedelta(0), "kept", "kept"),
        (LEAF_LIFETIME * 2 / 3 - DAY, "kept", "kept"),
        (LEAF_LIFETIME * 2 / 3 + DAY, "renewed", "kept"),
        (LEAF_LIFETIME + DAY, "renewed", "kept"),
        (timedelta(days=182), "renewed", "kept"),
        (timedelta(days=184), "renewed", "renewed"),
        (-timedelta(minutes=59), "kept", "kept"),
    ],
    ids=str,
)
def test_a_leaf_is_renewed_after_two_thirds_of_its_validity_and_a_ca_after_half(
    after: timedelta, leaf: str, authority: str
) -> None:
    renewed = renew(ISSUED, NAMES, now=NOW + after)
    assert (renewed.leaf == ISSUED.leaf, renewed.authority == ISSUED.authority) == (leaf == "kept", authority == "kept")
    verify(renewed.leaf, now=NOW + after, names=NAMES, ca_pem=renewed.authority.certificate_pem)


@pytest.mark.parametrize(
    "leaf",
    [
        OTHER.leaf,
        KeyPair(ISSUED.leaf.certificate_pem, OTHER.leaf.key_pem),
        KeyPair(b"half a certificate", ISSUED.leaf.key_pem),
        issue(("other.example",), now=NOW).leaf,
    ],
    ids=["of another CA", "of another key", "truncated", "for another name"],
)
def test_an_unusable_leaf_is_renewed_by_the_same_ca(leaf: KeyPair) -> None:
    renewed = renew(Issued(ISSUED.authority, leaf), NAMES, now=NOW)
    assert renewed.authority == ISSUED.authority
    verify(renewed.leaf, now=NOW, names=NAMES, ca_pem=ISSUED.authority.certificate_pem)


DATA = ISSUED.to_data()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "lacks ca.crt, ca.key, tls.crt, tls.key"),
        ({**DATA, "ca.key": b""}, "lacks ca.key"),
        ({**DATA, "ca.key": DATA["ca.key"][:40]}, "can't sign"),
        ({**DATA, "ca.key": OTHER.authority.key_pem}, "does not chain"),
        ({**DATA, "ca.crt": DATA["tls.crt"], "ca.key": DATA["tls.key"]}, "does not chain"),
        ({**DATA, "ca.crt": b"\xff\x00"}, "can't sign"),
    ],
    ids=["empty", "no CA key", "CA key truncated", "CA key of another", "leaf for a CA", "no text"],
)
def test_an_unusable_secret_is_explained(data: dict[str, bytes], problem: str) -> None:
    with pytest.raises(CertificateProblem, match=problem):
        Issued.from_data(data, now=NOW)


def test_an_expired_ca_is_unusable() -> None:
    with pytest.raises(CertificateProblem, match="expired"):
        Issued.from_data(DATA, now=NOW + timedelta(days=366))


def test_a_new_ca_is_trusted_with_the_old_one_before_it_replaces_it() -> None:
    old = ISSUED.authority.certificate_pem
    both = trusting(old, (OTHER.authority, ISSUED.authority), now=NOW)
    for leaf in (ISSUED.leaf, OTHER.leaf):
        verify_chain(leaf.certificate_pem, both, now=NOW)
    assert not trusts_only(both, OTHER.authority)
    assert trusting(both, (OTHER.authority,), now=NOW) == both
    alone = OTHER.authority.certificate_pem
    assert trusts_only(alone, OTHER.authority)
    with pytest.raises(CertificateProblem):
        verify_chain(ISSUED.leaf.certificate_pem, alone, now=NOW)


@pytest.mark.parametrize("bundle", [b"", b"no PEM", b"\xff\xfe"])
def test_a_bundle_without_certificates_becomes_the_ca(bundle: bytes) -> None:
    assert trusts_only(trusting(bundle, (ISSUED.authority,), now=NOW), ISSUED.authority)


def test_extending_a_bundle_drops_expired_certificates() -> None:
    late = NOW + timedelta(days=366)
    new = issue(NAMES, now=late)
    assert trusts_only(trusting(ISSUED.authority.certificate_pem, (new.authority,), now=late), new.authority)


def test_trust_ends_with_the_last_certificate_of_a_bundle() -> None:
    later = issue(NAMES, now=NOW + 30 * DAY)
    both = trusting(ISSUED.authority.certificate_pem, (later.authority,), now=NOW)
    assert end_of_trust(both) == NOW + timedelta(days=395)
    assert end_of_trust(b"") is None


def test_a_fresh_leaf_is_valid_for_a_clock_an_hour_behind() -> None:
    verify(ISSUED.leaf, now=NOW - BACKDATE, names=NAMES, ca_pem=ISSUED.authority.certificate_pem)
