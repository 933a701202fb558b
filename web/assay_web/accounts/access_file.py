"""The file `access.sqlite` of a workspace: accounts, identities, invitations, sessions, API tokens,
memberships in projects, attempts to sign in, and the audit log.

Tokens are stored as SHA-256 digests and passwords as argon2 hashes: the file's content is not enough to sign in.
"""

from hashlib import sha256
from pathlib import Path

from assay.system.hash_chain import AUDIT_FILE
from assay.system.sqlite_file import SQLiteFile

FILE = AUDIT_FILE


class AccessFile(SQLiteFile):
    """The open file, readable by its owner only (mode 0600)."""

    schema = Path(__file__).with_name("access_file.sql").read_text(encoding="utf-8")
    version = 7
    private = True
    remedy = "move it away and start again: accounts have to be created again; votes and data are not in it"


def digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()
