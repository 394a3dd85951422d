"""When a user is warned of a trainer's release."""

import logging

import pytest

from deepfreeze.trainers import tested_versions
from deepfreeze.trainers.tested_versions import _TESTED, warn_of_other_release


@pytest.mark.parametrize(
    ("package", "here", "warns"),
    [
        ("transformers", "5.23.0", False),
        ("transformers", "5.24.0", False),  # a minor release ahead
        ("transformers", "5.99.1.dev0", False),
        ("transformers", "5", False),
        ("transformers", "4.57.1", True),
        ("transformers", "6.0.0rc1", True),
        ("transformers", "50.0", True),
        ("accelerate", "1.16.0", False),
        ("torchtitan", "0.3.9", False),
        ("torchtitan", "0.4.0", True),  # of 0.x a minor release may change anything
        ("torchtitan", "main", True),
    ],
)
def test_only_another_major_release_is_worth_a_warning(
    package: str,
    here: str,
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tested_versions, "version", lambda _: here)
    monkeypatch.setattr(tested_versions, "_warned", set())
    with caplog.at_level(logging.DEBUG, "deepfreeze"):
        warn_of_other_release(package)
        warn_of_other_release(package)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == warns
    assert all(f"{package} {here} " in text and _TESTED[package] in text for text in texts)
