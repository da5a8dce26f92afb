"""The requests of all jobs: the options of every command, each declared once.

A request is the input of a job, from the command line or from a Python function. A field that is an
option carries an :class:`~expost.jobs.options.Option`; :mod:`expost.cli.options` turns a request
into a command. Nothing here imports numerics, so that ``--help`` is fast.
"""

from expost.jobs.requests.attacks import (
    AuditRequest,
    ConformRequest,
)
from expost.jobs.requests.base import (
    AnswerRequest,
    Request,
    command_line,
)
from expost.jobs.requests.evidence import (
    CardRequest,
    CheckRequest,
    DoctorRequest,
    DossierRequest,
    ReportRequest,
    RiskRequest,
    VerifyRequest,
)
from expost.jobs.requests.models import (
    DemoRequest,
    EncodingRequest,
    EpsilonRequest,
    ProfileRequest,
    TableRequest,
)
from expost.jobs.requests.releases import (
    ForgetRequest,
    LedgerRequest,
    LookupRequest,
    PublishRequest,
)

__all__ = [
    "AnswerRequest",
    "AuditRequest",
    "CardRequest",
    "CheckRequest",
    "ConformRequest",
    "DemoRequest",
    "DoctorRequest",
    "DossierRequest",
    "EncodingRequest",
    "EpsilonRequest",
    "ForgetRequest",
    "LedgerRequest",
    "LookupRequest",
    "ProfileRequest",
    "PublishRequest",
    "ReportRequest",
    "Request",
    "RiskRequest",
    "TableRequest",
    "VerifyRequest",
    "command_line",
]
