"""What a recording must show: `claim(ID).expect_later(checks.shows(answer, {"status": 200}))`."""

from nodeproof.checks.invariants import *
from nodeproof.checks.observations import *
from nodeproof.checks.repeated import *
from nodeproof.checks.settings import *
from nodeproof.checks.timing import *
