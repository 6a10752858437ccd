"""A coordinator for each test."""

import pytest
from group_rig import Rig
from modern_rig import ModernRig


@pytest.fixture
def rig(request):
    """For groups of KIP-848 in the files about them."""
    return ModernRig() if "modern" in request.path.name else Rig()
