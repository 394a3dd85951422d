"""An apt with a state of its own: the entries that it is given."""

from __future__ import annotations

import pytest

from debian_archive import as_entries


@pytest.mark.parametrize("kind", ["deb", "deb-src"])
def test_entries_of_apt_are_of_one_kind(kind: str) -> None:
    stanza = "# mirror\nTypes: deb deb-src\nURIs: http://a/debian\nSigned-By: /k.gpg\n"
    assert as_entries(stanza, ".sources", kind) == stanza.replace("deb deb-src", kind)
    line = "# deb none\ndeb [signed-by=/k.gpg] http://a/debian sid main\n"
    assert as_entries(line, ".list", kind) == line.replace("\ndeb", f"\n{kind}")
