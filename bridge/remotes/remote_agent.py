"""One remote agent: its card, which is kept fresh, a client for the agent, and why the agent cannot be called."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Final, NoReturn, Protocol

import anyio
import anyio.abc
import httpx2

from bridge.a2a.client.agent_card import FoundCard
from bridge.a2a.client.agent_client import AgentClient, ClientOptions
from bridge.a2a.client.card_places import LockedCardError
from bridge.a2a.client.http import redacted_url
from bridge.a2a.client.http_cache import DistrustedError
from bridge.a2a.client.interfaces import address_notes
from bridge.a2a.model.objects import AgentCard
from bridge.a2a.wire.canonical_card import CardProof
from bridge.concurrency import Backoff, border
from bridge.errors import UNAUTHORIZED, PeerError
from bridge.http.private_addresses import AddressGuard
from bridge.identity.logins.kept_logins import CallerLogins
from bridge.identity.logins.later_login import LaterLogin
from bridge.identity.logins.login_credentials import LoginNeededError, LoginToken
from bridge.identity.tokens.caller_token import Caller
from bridge.identity.tokens.token_exchange import CallerTokenError
from bridge.remotes.on_behalf import OnBehalf
from bridge.seal import agent_mark
from bridge.source_state import HeardRefusal, SourceState
from bridge.translate.extensions import apps, host_tasks, log_messages, mcp_requests
from bridge.translate.extensions.bridge import URI
from bridge.translate.tool_names import slug

logger = logging.getLogger(__name__)

_OWN: Final = (URI, mcp_requests.URI, apps.URI, log_messages.URI, host_tasks.URI)
"""The extensions of the bridge itself, which it activates wherever they are declared."""

_NOT_READ: Final = "its card has not been read yet"

_FIRST_LOOK_SECONDS: Final = 0.25
_LONGEST_LOOK_SECONDS: Final = 60.0
"""The longest pause between checks for a login: no event tells that a person has logged in, or that an issuer has
revoked a login."""

_LONGEST_WAIT_SECONDS: Final = 5.0
"""The longest pause between checks for a login for a URL of the command line, while the agent cannot be called. Each
check looks for one file."""


class CardProvider(Protocol):
    """The source of an agent's card; see `CardSource`."""

    @property
    def is_settled(self) -> bool:
        """Whether the names on the card are final, and depend on nothing that is still unknown."""
        ...

    def cached(self) -> FoundCard | None:
        """The remembered card; None when the card was never read."""
        ...

    async def refresh(self) -> FoundCard:
        """The card, read now.

        Raises:
            PeerError: the card cannot be read.
        """
        ...

    async def watch(
        self,
        on_change: Callable[[FoundCard], Awaitable[None]],
        on_distrust: Callable[[DistrustedError], None] = ...,
    ) -> NoReturn:
        """Call `on_change` with each changed card, for ever, and `on_distrust` when the card must no longer be used."""
        ...


class RemoteAgent:
    """A remote agent of one MCP server. Its known tools stay listed while it is down."""

    def __init__(
        self,
        url: str,
        source: CardProvider,
        http: httpx2.AsyncClient,
        options: ClientOptions,
        *,
        key: str | None = None,
        account: str = "",
        on_behalf: OnBehalf | None = None,
        push: bool = True,
        approve: Callable[[FoundCard], FoundCard] = lambda card: card,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`key` is the configured key. `account` distinguishes this agent from others at the same URL. `on_behalf`
        gives the credentials for calls in the names of callers; with None, the agent is called in the bridge's name.
        `push` says whether the agent may be asked for push notifications. `approve` gives the part of a card that may
        be used, or raises a PeerError.

        The account stands for the credentials: the agent separates the tasks of different credentials, and a handle has
        to come back to the account that began its task. So `account` holds references to the credentials, which outlive
        a rotation, and never the credentials themselves.
        """
        self.url = url
        self._own_key = key
        self._card: AgentCard | None = None
        self._names_settled = False
        self.deviations: tuple[str, ...] = ()
        """The deviations of its card from the specification."""
        self.key = self.wanted_key
        """The agent's name in tool names and messages. The listing of its MCP server sets the key, so that it is unique
        there."""
        self.mark = agent_mark(f"{url}\0{account}" if account else url)
        """The mark of the agent in handles."""
        self._now_ms = now_ms
        self._state = SourceState("", _NOT_READ, now_ms())
        self._fault: str | None = _NOT_READ
        """What is wrong with the agent's card; None if nothing is."""
        self._lack = ""
        """Why there is no login for the agent; "" if there is one, or none is needed."""
        self._refusal = HeardRefusal(logger)
        """Whether the agent refuses the bridge's credentials, while its card is good."""
        self._hides_card = False
        """Whether the agent refuses to show its card because of missing credentials."""
        self._source = source
        self._http = http
        # A refusal of a caller's credentials says nothing about the bridge's credentials.
        self._options = options if on_behalf else replace(options, on_refusal=self._note_refusal)
        self._client: AgentClient | None = None
        self._found: FoundCard | None = None
        self._on_behalf = on_behalf
        self.begins_anew = False
        """Whether the agent answered in a new context when a call last continued a conversation."""
        self._approve = approve
        self.whole_card: AgentCard | None = None
        """Its card with what is not approved, too; None if the card was never read."""
        self.may_notify = push
        """Whether the agent may be asked for push notifications."""

    @property
    def wanted_key(self) -> str:
        """The configured key, else the name on the agent's card, else the host of its URL."""
        if self._own_key is not None:
            return self._own_key
        host = httpx2.URL(self.url).host
        return slug(self._card.name if self._card else host if host[:1].isalpha() else f"agent {host}")

    @property
    def has_own_key(self) -> bool:
        """Whether the agent's key is configured."""
        return self._own_key is not None

    @property
    def has_card(self) -> bool:
        """Whether the agent's card has been read, in this run or an earlier one."""
        return self._card is not None

    @property
    def is_settled(self) -> bool:
        """Whether the names of its skills are final. An agent of this same process may have servers whose tools are
        still unknown."""
        return self.has_card and self._names_settled

    @property
    def is_heard_of(self) -> bool:
        """Whether reading the agent's card has succeeded or failed at least once."""
        return self._fault != _NOT_READ

    @property
    def guard(self) -> AddressGuard | None:
        """The guard that checks the addresses behind the agent's URL."""
        return self._options.reach.guard(self.url) if self._options.reach else None

    @property
    def down(self) -> str | None:
        """Why the agent cannot be called, in words; None while it can."""
        return self._state.down

    @property
    def state(self) -> SourceState:
        """Whether the agent is up or down, and since when."""
        return replace(self._state, key=self.key)

    @property
    def card(self) -> AgentCard:
        """Its card. Requires `has_card`."""
        assert self._card is not None, "it has been read"
        return self._card

    @property
    def holds_back(self) -> bool:
        """Whether some of its skills are not offered because their definitions are not approved."""
        return self.whole_card is not None and self.whole_card is not self._card

    @property
    def client(self) -> AgentClient:
        """A client without a caller's credentials. If the agent is called in the names of callers, use `client_for` for
        calls.

        Raises:
            PeerError: the agent cannot be called. The message says why.
        """
        if self._client is None:
            words = f"The agent {self.key} at {redacted_url(self.url)} cannot be called: {self.down}"
            raise PeerError(words, outcome=UNAUTHORIZED if self._state.is_unauthorized else "")
        return self._client

    def client_for(self, caller: Caller, extensions: Collection[str] = ()) -> AgentClient:
        """A client that acts for a caller, and activates further extensions where the card declares them.

        Raises:
            CallerTokenError: the agent is called with the rights of callers, and this caller has no credentials for it.
            PeerError: the agent cannot be called. The message says why.
        """
        client, options = self.client, self._options
        if self._on_behalf is None and not client.declared(extensions) - client.extensions:
            return client
        if self._on_behalf is not None:
            try:
                credentials = self._on_behalf.credentials(caller, options.credentials)
            except CallerTokenError as exc:
                raise CallerTokenError(f"The agent {self.key} cannot be called: {exc}") from exc
            options = replace(options, credentials=credentials)
        assert self._found is not None, "there is a client"
        options = replace(options, extensions=(*options.extensions, *sorted(extensions)))
        return AgentClient(self._http, self._found, options)

    @property
    def is_called_on_behalf(self) -> bool:
        """Whether the agent is called in the names of callers."""
        return self._on_behalf is not None

    @property
    def caller_issuer(self) -> str | None:
        """The issuer whose tokens callers have to present; None if they need no token."""
        return None if self._on_behalf is None else self._on_behalf.issuer

    @property
    def caller_logins(self) -> CallerLogins | None:
        """The logins of callers; None if callers need no login."""
        return None if self._on_behalf is None else self._on_behalf.logins

    def keep_login(self, principal: str, since: float | None) -> None:
        """Use only the login that the principal made at the time `since`; None for no login."""
        if self._on_behalf is not None:
            self._on_behalf.keep_login(principal, since)

    @property
    def proof(self) -> CardProof | None:
        """Who signed the card, if keys are pinned for it."""
        return self._found.proof if self._found else None

    @property
    def extension_active(self) -> bool:
        """Whether the agent belongs to another bridge and the extension is active, so that results arrive exactly as
        the tool gave them."""
        return self._client is not None and URI in self._client.extensions

    @property
    def has_logs(self) -> bool:
        """Whether the agent passes on log messages of MCP servers."""
        return self._client is not None and log_messages.URI in self._client.extensions

    @property
    def shares_tasks(self) -> bool:
        """Whether the agent leaves it to hosts whether a call may become a task of its MCP server."""
        return self._client is not None and host_tasks.URI in self._client.extensions

    @property
    def named_extensions(self) -> tuple[str, ...]:
        """The extensions that both the configuration and the card name, besides the bridge's own ones."""
        active = self._client.extensions if self._client is not None else frozenset()
        return tuple(uri for uri in self._options.extensions if uri in active and uri not in _OWN)

    @property
    def extension_notes(self) -> tuple[str, ...]:
        """Notes on the extensions in which the card and the configuration differ. Requires `has_card`."""
        declared = self.card.capabilities.extensions or ()
        uris = {extension.uri for extension in declared}
        unknown = [uri for uri in self._options.extensions if uri not in (*uris, *_OWN)]
        needed = [
            extension.uri
            for extension in declared
            if extension.required and extension.uri not in self._options.extensions
        ]
        return (
            *(f"its card does not declare the extension {uri}, which is not activated" for uri in unknown),
            *(
                f"its card requires the extension {uri}, so it may refuse every call; `extensions` activates it"
                for uri in needed
            ),
        )

    def use_remembered_card(self) -> None:
        """Use the remembered card, if there is one, so that a start need not wait for the agent."""
        if (card := self._source.cached()) is None:
            return
        try:
            self._take(card)
        except PeerError as exc:
            logger.warning("%s: %s", self.key, exc)

    async def refresh(self) -> None:
        """Read the card now.

        Raises:
            PeerError: the agent cannot be reached, or its card cannot be used.
        """
        try:
            self._take(await self._source.refresh())
        except DistrustedError as exc:
            self._distrust(exc)
            raise
        except PeerError as exc:
            fault = self._with_hint(exc)
            if self._client is None:
                self._hides_card = fault is exc and exc.outcome == UNAUTHORIZED
                self._set_fault(str(fault))
            if fault is exc:
                raise
            raise fault from exc
        await self._look_for_login()

    @property
    def lacks_login(self) -> bool | None:
        """Whether a person has to log in; None if, as far as is known, the agent needs no login of a person."""
        tokens = self._options.credentials.tokens
        is_known = tokens.is_there if isinstance(tokens, LaterLogin) else isinstance(tokens, LoginToken)
        return bool(self._lack) if is_known else None

    def _with_hint(self, fault: PeerError) -> PeerError:
        """Why the card was not read. If the agent shows its card only after a login, the error says how to log in."""
        hint = self._options.how_to_log_in
        if not isinstance(fault, LockedCardError) or not hint:
            return fault
        return LoginNeededError(f"login needed: {fault}. {hint}")

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Read the card whenever it is due, and at once if that was never tried. `on_change` is called for a changed
        card."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_login, on_change)
            await self._watch_card(on_change)

    async def _watch_login(self, on_change: Callable[[], None]) -> None:
        """Check again and again for the login of a person, if the agent needs one."""
        tokens = self._options.credentials.tokens
        if isinstance(tokens, LaterLogin):
            await self._await_login(tokens, on_change)
        elif not isinstance(tokens, LoginToken):
            return
        pauses = Backoff(_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS)
        while True:
            await self._look_for_login()
            if self._lack:
                await anyio.sleep(pauses.next())
            else:
                pauses.reset()
                await anyio.sleep(_LONGEST_LOOK_SECONDS)

    async def _await_login(self, tokens: LaterLogin, on_change: Callable[[], None]) -> None:
        """Wait until there is a login. This only checks for a login while the agent cannot be called at all: otherwise,
        a call that the agent refuses checks for it."""
        pauses = Backoff(_FIRST_LOOK_SECONDS, _LONGEST_WAIT_SECONDS)
        while not tokens.is_there:
            await anyio.sleep(pauses.next())
            if self._client is not None or not self.is_heard_of:
                continue
            try:
                if await tokens.find():
                    await self.refresh()
                    on_change()
            except PeerError as exc:
                logger.warning("%s: %s", self.key, exc)

    async def _look_for_login(self) -> None:
        """Find out whether there is a login for the agent, if it needs a login of a person."""
        tokens = self._options.credentials.tokens
        self._lack = await tokens.lack() if isinstance(tokens, LoginToken | LaterLogin) else ""
        self._set_fault(self._fault)

    async def _watch_card(self, on_change: Callable[[], None]) -> None:
        if not self.is_heard_of:
            try:
                await self.refresh()
            except PeerError as exc:
                logger.warning("%s: %s", self.key, exc)
            else:
                on_change()

        async def changed(card: FoundCard) -> None:
            before = self._card, self._names_settled
            try:
                self._take(card)
            except PeerError as exc:
                logger.warning("%s: its new card cannot be used: %s", self.key, exc)
            if (self._card, self._names_settled) != before:
                on_change()

        await self._source.watch(changed, self._distrust)

    def _take(self, card: FoundCard) -> None:
        """Use a card.

        Raises:
            PeerError: the card names no interface that the bridge can call, or nothing of it is approved.
        """
        self.whole_card = card.card
        try:
            card = self._approve(card)
        except PeerError as exc:
            self._client, self._card, self._found = None, None, None
            self._set_fault(str(exc))
            raise
        notes = address_notes(card, self._options.trust)
        for note in notes:
            logger.warning("%s: %s", self.key, note)
        self._card, self.deviations = card.card, (*card.deviations, *notes)
        self._names_settled = self._source.is_settled
        try:
            self._client, self._found = AgentClient(self._http, card, self._options), card
        except PeerError as exc:
            self._client = None
            self._set_fault(str(exc))
            raise
        self._set_fault(None)

    def _note_refusal(self, words: str) -> None:
        """Note that the agent refused a request because of its credentials; without words, that it accepted a
        request."""
        if words != self._refusal.words:
            self._refusal.note(str(self.key), words)
            self._set_fault(self._fault)

    def _distrust(self, fault: DistrustedError) -> None:
        """Stop calling the agent, although its card was good before."""
        self._client = self._found = None
        self._set_fault(str(fault))

    def _set_fault(self, fault: str | None) -> None:
        """Set what is wrong with the card; None if nothing is. The agent is also down without a login, and while it
        refuses the bridge's credentials."""
        self._fault = fault
        self._hides_card = self._hides_card and fault is not None
        refuses = self._hides_card or (not fault and not self._lack and bool(self._refusal.words))
        self._state = self._state.then(
            fault or self._lack or self._refusal.words or None, self._now_ms(), is_unauthorized=refuses
        )


async def read_cards(agents: list[RemoteAgent], within_seconds: float) -> None:
    """Read the cards of all agents concurrently, for at most `within_seconds`."""

    async def read(agent: RemoteAgent) -> None:
        with border(logger, str(agent.key)):
            try:
                await agent.refresh()
            except PeerError as exc:
                logger.warning("%s: %s", agent.key, exc)

    with anyio.move_on_after(within_seconds):
        async with anyio.create_task_group() as tasks:
            for agent in agents:
                tasks.start_soon(read, agent)
