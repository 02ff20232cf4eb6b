"""Small repositories with real code of several languages, made in a temporary folder.

`make_shop(tmp_path)` -> path of a work tree with one commit. Small enough to index in a second, and each question in
`SHOP_QUESTIONS` has one file that answers it.
"""

from __future__ import annotations

from pathlib import Path

from tests.factories import make_repo

SHOP_QUESTIONS = {
    "How is the price of a basket computed?": "shop/basket.py",
    "Where are sessions kept between requests?": "shop/sessions.py",
    "Which function sends the e-mail about a shipped order?": "mail/notify.go",
    "How does the page react to a click on the checkout button?": "web/checkout.ts",
}

SHOP_FILES: dict[str, str | bytes] = {
    "README.md": """\
# Shop

A small web shop.

## Running

Start the server with `python -m shop`. It listens on port 8080.

## Discounts

Orders above 100 get ten percent off, see `shop/basket.py`.
""",
    "shop/__init__.py": "",
    "shop/basket.py": '''\
"""What a customer wants to buy, and what it costs."""

from dataclasses import dataclass, field
from decimal import Decimal

DISCOUNT_FROM = Decimal("100")


@dataclass
class Basket:
    """Items of one customer."""

    items: list["Item"] = field(default_factory=list)

    def add(self, item: "Item") -> None:
        self.items.append(item)

    def total_price(self) -> Decimal:
        """Sum of all items, ten percent off for large orders."""
        total = sum((item.price * item.count for item in self.items), Decimal(0))
        if total >= DISCOUNT_FROM:
            return total * Decimal("0.9")
        return total


@dataclass
class Item:
    name: str
    price: Decimal
    count: int = 1
''',
    "shop/sessions.py": '''\
"""Sessions: what the server remembers about a browser between two requests."""

import json
import time

from shop.storage import Storage

LIFETIME_SECONDS = 14 * 24 * 3600


class SessionStore:
    """Keeps sessions as JSON in a key-value storage, under random names."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def load(self, session_id: str) -> dict:
        raw = self.storage.get(f"session:{session_id}")
        return json.loads(raw) if raw else {}

    def save(self, session_id: str, data: dict) -> None:
        self.storage.set(f"session:{session_id}", json.dumps(data), expires=time.time() + LIFETIME_SECONDS)

    def forget(self, session_id: str) -> None:
        self.storage.delete(f"session:{session_id}")
''',
    "shop/storage.py": '''\
"""A key-value storage in memory."""


class Storage:
    def __init__(self) -> None:
        self._values: dict[str, tuple[str, float]] = {}

    def get(self, key: str) -> str | None:
        value = self._values.get(key)
        return value[0] if value else None

    def set(self, key: str, value: str, expires: float) -> None:
        self._values[key] = (value, expires)

    def delete(self, key: str) -> None:
        self._values.pop(key, None)
''',
    "mail/notify.go": """\
// Package mail writes to customers.
package mail

import "fmt"

// Sender delivers one message.
type Sender interface {
	Send(to, subject, body string) error
}

// NotifyShipped sends the e-mail that tells a customer that an order was shipped.
func NotifyShipped(sender Sender, to string, order int) error {
	subject := fmt.Sprintf("Order %d is on its way", order)
	return sender.Send(to, subject, "Your parcel was handed to the carrier today.")
}
""",
    "web/checkout.ts": """\
import { post } from "./http";

/** Wires the checkout button: one click, one order. */
export function bindCheckout(button: HTMLButtonElement, basketId: string): void {
  button.addEventListener("click", async () => {
    button.disabled = true;
    const order = await post(`/baskets/${basketId}/checkout`);
    window.location.assign(`/orders/${order.id}`);
  });
}
""",
    "web/http.ts": """\
export async function post(path: string): Promise<{ id: number }> {
  const response = await fetch(path, { method: "POST" });
  if (!response.ok) {
    throw new Error(`POST ${path} failed with ${response.status}`);
  }
  return response.json();
}
""",
    "config/settings.toml": """\
[server]
port = 8080
host = "127.0.0.1"

[mail]
from = "shop@localhost"
""",
}


def make_shop(tmp_path: Path) -> Path:
    return make_repo(tmp_path, SHOP_FILES, name="shop")
