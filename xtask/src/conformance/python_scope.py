"""Leaves out the tests that are listed as out of scope.

pytest's own --deselect takes names as prefixes, so that a test would take others with it whose
names begin like its own.
"""

import os

import pytest


def pytest_collection_modifyitems(config, items):
    with open(os.environ["MILLSTREAM_OUT_OF_SCOPE"], encoding="utf-8") as listed:
        names = {line.strip() for line in listed if line.strip()}
    # A test with parameters is listed once, without them.
    left_out = [item for item in items if item.nodeid.split("[")[0] in names]
    unknown = names - {item.nodeid.split("[")[0] for item in left_out}
    if unknown:
        raise pytest.UsageError("listed as out of scope but not there: " + ", ".join(sorted(unknown)))
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
