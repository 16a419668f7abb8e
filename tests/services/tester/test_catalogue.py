"""What owners publish at the tester: signed, the newest alone, of enrolled owners, and shown as text."""

import pytest
from served import problem
from tester_federation import URL, Federation
from window import Window

from tacit_protocol.domain import CategoricalColumn, NumericColumn
from tacit_protocol.messages.catalogue import CatalogueMessage, PublishedDataSet
from tacit_protocol.messages.encoding import decode, encode
from tacit_protocol.signing import CATALOGUE_TYPE, RELEASE_TYPE, PrivateKey, issue_token, sign_envelope

XSS = "<img src=x onerror=alert(1)>"


pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def entry(federation: Federation, owner: str, version: int = 10, about: str = "Patients") -> CatalogueMessage:
    columns = (
        NumericColumn(name="age", lower=0, upper=120),
        CategoricalColumn(name="ward", levels=("a", XSS)),
    )
    held = PublishedDataSet(name="patients", about=about, units=900, columns=columns, measures={"age": XSS})
    return CatalogueMessage(
        owner=owner,
        tester=federation.parties.tester.public_hex,
        version=version,
        data_sets=(held,),
        procedures=("*",),
        approval="by-hand",
    )


def signed(message: CatalogueMessage, key: PrivateKey, kind: str = CATALOGUE_TYPE) -> bytes:
    return sign_envelope(encode(message), kind, key)


def test_an_owner_publishes_and_everybody_reads_the_newest(federation: Federation) -> None:
    owner = sorted(federation.parties.owners)[0]
    key, path = federation.parties.owners[owner], f"/v1/catalogue/{owner}"
    first, later = (signed(entry(federation, owner, version), key) for version in (10, 11))
    assert problem(federation.get(path)) == "not-found"
    assert [federation.put(path, key, sent).status_code for sent in (first, first, later)] == [201, 200, 201]
    assert problem(federation.put(path, key, first)) == "conflicting-upload"
    other = signed(entry(federation, owner, 11, about="other words"), key)
    assert problem(federation.put(path, key, other)) == "conflicting-upload"
    assert federation.get(path, federation.parties.analyst).content == later
    listed = federation.get("/v1/catalogue", federation.parties.analyst).json()
    assert listed == {"items": [{"owner": owner, "version": 11}], "next": None}


def test_nobody_publishes_for_another(federation: Federation) -> None:
    first, second = sorted(federation.parties.owners)[:2]
    keys, path = federation.parties.owners, f"/v1/catalogue/{first}"
    good = entry(federation, first)
    flipped = bytearray(signed(good, keys[first]))
    flipped[len(flipped) // 2] ^= 1
    elsewhere = good.model_copy(update={"tester": "0" * 64})
    for sender, sent, refused in (
        (keys[second], signed(good, keys[second]), {"study-refused"}),
        (keys[second], signed(good, keys[first]), {"invalid-signature"}),
        (keys[first], signed(good, keys[second]), {"invalid-signature"}),
        (keys[first], signed(good, keys[first], RELEASE_TYPE), {"invalid-signature"}),
        (keys[first], signed(entry(federation, second), keys[first]), {"digest-mismatch"}),
        (keys[first], signed(elsewhere, keys[first]), {"digest-mismatch"}),
        (keys[first], bytes(flipped), {"invalid-signature", "malformed-message"}),
        (federation.parties.analyst, signed(good, federation.parties.analyst), {"forbidden"}),
    ):
        assert problem(federation.put(path, sender, sent)) in refused
    assert problem(federation.get(path)) == "not-found"


def test_what_a_revoked_key_published_is_shown_no_more(federation: Federation) -> None:
    owner = sorted(federation.parties.owners)[0]
    key, path = federation.parties.owners[owner], f"/v1/catalogue/{owner}"
    assert federation.put(path, key, signed(entry(federation, owner), key)).status_code == 201
    federation.call("PUT", f"/v1/parties/{owner}/revocation", federation.parties.tester)
    assert problem(federation.get(path)) == "not-found"
    assert federation.get("/v1/catalogue").json()["items"] == []


def test_more_owners_than_a_page_holds_are_listed_in_pages(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit_services.tester.parties.ENTRIES_PER_PAGE", 1)
    for owner, key in federation.parties.owners.items():
        federation.put(f"/v1/catalogue/{owner}", key, signed(entry(federation, owner), key))
    seen, query = [], ""
    for _ in federation.parties.owners:
        page = federation.get("/v1/catalogue" + query).json()
        seen += [item["owner"] for item in page["items"]]
        query = f"?cursor={page['next']}"
    assert seen == sorted(federation.parties.owners)
    assert query == "?cursor=None"


def test_the_page_shows_words_of_others_as_text(federation: Federation) -> None:
    owner = sorted(federation.parties.owners)[0]
    key = federation.parties.owners[owner]
    message = entry(federation, owner, about=XSS)
    assert decode(CatalogueMessage, encode(message)) == message
    federation.put(f"/v1/catalogue/{owner}", key, signed(message, key))
    analyst = federation.parties.analyst
    window = Window(federation.app, URL, lambda: issue_token(analyst, URL, int(federation.now)))
    assert window.get("/data-sets").status_code != 200
    window.sign_in()
    page = window.get("/data-sets").text
    assert f"{owner}/patients" in page
    assert "About 900 privacy units" in page
    assert "onerror" in page
    assert "<img" not in page
