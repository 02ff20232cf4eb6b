from __future__ import annotations

import json

import pytest

from indexing.chunking import chunk_file
from indexing.chunking.openapi import referred_texts
from tests.indexing.sources import make_source, primary, uncovered

YAML = """\
openapi: 3.0.3
info: {title: Shop, version: "1"}
security:
  - key: []
paths:
  # people who buy
  /users/{id}:
    parameters:
      - {name: id, in: path}
    get:
      summary: Read a user
      responses:
        "200": {content: {application/json: {schema: {$ref: "#/components/schemas/User"}}}}
    delete:
      security:
        - oauth: [write]
      responses:
        "404": {$ref: "#/components/responses/Missing"}
  /ping:
    get:
      responses: {"200": {description: pong}}
components:
  securitySchemes:
    key: {type: apiKey}
    oauth: {type: oauth2}
  responses:
    Missing: {description: not there}
  schemas:
    User:
      properties:
        friend: {$ref: "#/components/schemas/User"}
        address: {$ref: "#/components/schemas/Address"}
    Address: {type: object}
    Unused: {type: object}
"""
SWAGGER = {
    "swagger": "2.0",
    "paths": {"/a": {"post": {"parameters": [{"schema": {"$ref": "#/definitions/A"}}]}, "get": {"summary": "x"}}},
    "definitions": {"A": {"type": "object", "properties": {"again": {"$ref": "#/definitions/A"}}}},
}


def _endpoints(path: str, content: str) -> dict[str, str]:
    source = make_source(path, content)
    assert source.route == "openapi"
    found = [item for item in chunk_file(source).chunks if item.kind == "endpoint"]
    return {item.symbol: source.raw[item.start_byte : item.end_byte].decode() for item in found}


def _referred(path: str, content: str) -> list[str]:
    source = make_source(path, content)
    return ["\n".join(texts) for _, texts in sorted(referred_texts(source.text, source.language).items())]


@pytest.mark.parametrize("indent", [2, None])
def test_it_makes_one_chunk_of_each_path_and_method(indent: int | None) -> None:
    found = _endpoints("api.json", json.dumps(SWAGGER, indent=indent))
    assert list(found) == ["POST /a", "GET /a"]
    assert found["POST /a"].startswith('"/a"')
    assert found["GET /a"].startswith('"get"')


def test_it_reads_yaml_and_keeps_path_comment_and_shared_parameters_with_the_first_method() -> None:
    found = _endpoints("api.yaml", YAML)
    assert list(found) == ["GET /users/{id}", "DELETE /users/{id}", "GET /ping"]
    assert found["GET /users/{id}"].startswith("# people who buy\n  /users/{id}:\n    parameters:")
    assert "delete" not in found["GET /users/{id}"]


def test_it_tiles_the_document() -> None:
    for path, content in (
        ("api.yaml", YAML),
        ("a.json", json.dumps(SWAGGER)),
        ("b.json", json.dumps(SWAGGER, indent=1)),
    ):
        source = make_source(path, content)
        chunked = chunk_file(source)
        assert uncovered(source.raw, chunked) == b""
        assert not any(source.raw[item.start_byte :].startswith((b"}", b",")) for item in primary(chunked))


def test_it_keeps_an_endpoint_whole_above_the_ceiling() -> None:
    large = YAML.replace("summary: Read a user", "summary: Read a user\n" + "      # a line of words\n" * 200)
    assert len(_endpoints("api.yaml", large)["GET /users/{id}"]) > 3000


def test_it_follows_references_once() -> None:
    read, remove, ping = _referred("api.yaml", YAML)
    assert read.count("User:") == 1
    assert "Address:" in read
    assert "Unused" not in read + remove + ping
    assert "Missing:" in remove


def test_it_adds_shared_parameters_to_later_methods_and_the_security_that_applies() -> None:
    read, remove, ping = _referred("api.yaml", YAML)
    assert "parameters:" in remove
    assert "parameters:" not in read
    assert "oauth:" in remove
    assert "oauth:" not in read
    assert "key:" in ping


def test_it_ends_on_cycles() -> None:
    create, _ = _referred("api.json", json.dumps(SWAGGER))
    assert create.count('"A": {') == 1


def test_it_treats_a_description_without_endpoints_as_configuration() -> None:
    source = make_source("api.yaml", "openapi: 3.0.0\ninfo:\n  title: x\n")
    assert [item.kind for item in chunk_file(source).chunks] == ["section"]
