"""The exceptions among types that listen."""

from tests.architectures.special import Special

HEARING: dict[str, Special] = {}
