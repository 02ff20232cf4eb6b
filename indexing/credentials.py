"""Logins of private repositories: what a person typed -> ciphertext in the database -> a `Secret` for Git alone.

A secret is encrypted with the first key of CREDENTIALS_KEY and read with any of them. It belongs to one origin
(scheme, host and port) and is refused for every other; nothing here writes it anywhere, and its `repr` hides it.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives import serialization
from django.conf import settings
from django.utils.crypto import salted_hmac

from indexing.errors import InvalidLogin
from indexing.models import Credential, Mirror

if TYPE_CHECKING:
    from django.contrib.auth.models import User

DEFAULT_USERNAME = "git"  # hosting sites look at the token alone; only deploy tokens of GitLab have a name
SITE_USERNAMES = {"github": "x-access-token", "gitlab": "oauth2", "gitea": "oauth2"}
MAX_SECRET_CHARS = 20_000
NO_KEY = (
    "This server cannot keep logins: it has no CREDENTIALS_KEY. An operator makes one with "
    "`manage.py rotate_credentials --new-key` and puts it into the environment."
)


@dataclass(frozen=True, slots=True)
class Secret:
    """A token with its user name, or a private SSH key in OpenSSH or PEM form."""

    kind: str  # a value of Credential.Kind
    text: str = field(repr=False)
    username: str = ""
    fingerprint: str = ""

    def check_fits(self, url: str) -> None:
        """Raises InvalidLogin when this secret cannot, or must not, be used for `url`."""
        scheme, host = urlsplit(url).scheme, urlsplit(url).hostname or ""
        if self.kind == Credential.Kind.KEY:
            if scheme != "ssh":
                raise InvalidLogin("An SSH key needs an SSH address, such as git@github.com:owner/name.")
        elif scheme not in ("https", "http"):
            raise InvalidLogin("An access token needs the https address of the repository.")
        elif scheme == "http" and host not in {name.lower() for name in settings.GIT_ALLOWED_HOSTS}:
            raise InvalidLogin(f"A token would cross the network unencrypted. Use https://{host}/... instead.")


def token_secret(token: str, username: str = "") -> Secret:
    """Raises InvalidLogin."""
    token, username = token.strip(), username.strip() or DEFAULT_USERNAME
    for text, what, limit in ((token, "access token", 4000), (username, "user name", 100)):
        if not text or len(text) > limit or not text.isprintable() or any(c.isspace() for c in text):
            raise InvalidLogin(f"The {what} has to be one word of at most {limit} printable characters.")
    digest = salted_hmac("indexing.credentials", token, algorithm="sha256").hexdigest()
    return Secret(Credential.Kind.TOKEN, token, username, digest)


def key_secret(private_key: str) -> Secret:
    """Raises InvalidLogin for what is no private key, or one with a passphrase, which nobody could type for Git."""
    text = private_key.strip().replace("\r\n", "\n") + "\n"
    if len(text) > MAX_SECRET_CHARS:
        raise InvalidLogin(f"An SSH key has at most {MAX_SECRET_CHARS:,} characters.")
    openssh = "BEGIN OPENSSH PRIVATE KEY" in text
    load = serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
    try:
        public = load(text.encode(), password=None).public_key()
        line = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    except TypeError as error:
        raise InvalidLogin("This SSH key has a passphrase. Make a deploy key without one.") from error
    except (ValueError, UnsupportedAlgorithm, AttributeError) as error:
        raise InvalidLogin("This is not a private SSH key. Paste the whole file, from BEGIN to END.") from error
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return Secret(Credential.Kind.KEY, text, "", f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}")


def site_secret(site: str) -> Secret:
    """The token that the settings have for a hosting site. Raises InvalidLogin when there is none."""
    token = settings.HOSTING_APIS[site][1]
    if not token:
        raise InvalidLogin(f"This repository is private and {site.upper()}_TOKEN is empty. Set it, then retry.")
    return Secret(Credential.Kind.SITE, token, SITE_USERNAMES[site], site)


def origin_of(url: str) -> str:
    """`https://github.com:8443/a/b` -> `https://github.com:8443`."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"


def keep(secret: Secret, *, url: str, owner: User | None) -> Credential:
    """The owner's row for this secret; the same secret for the same origin is kept once. Raises InvalidLogin.

    Of a token of the settings only the name of its site is kept: it is changed where it stands.
    """
    secret.check_fits(url)
    same = {
        "owner": owner,
        "kind": secret.kind,
        "origin": origin_of(url),
        "username": secret.username,
        "fingerprint": secret.fingerprint,
    }
    if (known := Credential.objects.filter(**same).first()) is not None:
        return known
    sealed = "" if secret.kind == Credential.Kind.SITE else _fernet().encrypt(secret.text.encode()).decode()
    return Credential.objects.create(**same, sealed=sealed)


def secret_of(mirror: Mirror) -> Secret | None:
    """What Git needs for the mirror's source. Raises InvalidLogin when it cannot be read, or is for another origin."""
    row = mirror.credential
    if row is None:
        return None
    if row.origin != origin_of(mirror.url):
        raise InvalidLogin(f"The login kept for {row.origin} is not sent to {mirror.url}. Enter one for that address.")
    if row.kind == Credential.Kind.SITE:
        return site_secret(row.fingerprint)
    try:
        text = _fernet().decrypt(row.sealed.encode()).decode()
    except InvalidToken as error:
        raise InvalidLogin(
            f"The login kept for {row.origin} was encrypted with a key that CREDENTIALS_KEY does not have. "
            "Add that key again, or enter the login anew in the settings of the repository."
        ) from error
    return Secret(row.kind, text, row.username, row.fingerprint)


def forget_unused() -> None:
    """Secrets that no mirror needs any more."""
    Credential.objects.filter(mirrors=None).delete()


def rotate() -> int:
    """Encrypt every secret with the first key; afterwards the other keys can go. Raises InvalidLogin."""
    fernet, done = _fernet(), 0
    for row in Credential.objects.exclude(sealed=""):
        try:
            row.sealed = fernet.rotate(row.sealed.encode()).decode()
        except InvalidToken as error:
            raise InvalidLogin(f"Login {row.pk} for {row.origin} needs a key that CREDENTIALS_KEY lacks.") from error
        row.save(update_fields=["sealed"])
        done += 1
    return done


def can_keep() -> bool:
    return bool(settings.CREDENTIALS_KEYS)


def new_key() -> str:
    return Fernet.generate_key().decode()


def _fernet() -> MultiFernet:
    if not settings.CREDENTIALS_KEYS:
        raise InvalidLogin(NO_KEY)
    return MultiFernet([Fernet(key) for key in settings.CREDENTIALS_KEYS])
