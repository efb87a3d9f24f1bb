"""Points in time that a recording shows: `moments.created("nodes", name)`."""

from nodeproof.checks.moments import *
from nodeproof.checks.witnessed import *
