"""Who is asking. Every function that reads repositories takes a `Principal`; `visible_to` applies it.

A `Caller` is what the border of the API makes of a token: the person, what it reads as, and whether staff rights count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, User


@dataclass(frozen=True, slots=True)
class Principal:
    """A user, or a token of that user restricted to some repositories.

    user_id is None for anonymous (sees nothing). `sees_all` is for superusers and for commands run on the
    server itself. `repository_ids`, when not None, narrows whatever the user may see.
    """

    user_id: int | None
    sees_all: bool = False
    repository_ids: frozenset[int] | None = None

    @classmethod
    def of_user(cls, user: User | AnonymousUser) -> Principal:
        if not user.is_authenticated or not user.is_active:
            return cls(user_id=None)
        return cls(user_id=user.pk, sees_all=user.is_superuser)

    @classmethod
    def operator(cls) -> Principal:
        """The person at the server's shell: management commands and the worker."""
        return cls(user_id=None, sees_all=True)


@dataclass(frozen=True)
class Caller:
    """Who sent a request to the API. `is_staff` only when the token was made for that as well."""

    user: User
    principal: Principal
    is_staff: bool
