"""Which syntax nodes are definitions and imports, per grammar: a table, turned into tree-sitter queries by `parsing`.

A line `kind: node_type ...` means "a node of this type is a definition of this kind, named by its field `name`".
A line that begins with `(` is a query pattern of its own; lines that follow indented belong to it. Captures: `@name`
(a dotted name keeps its last part, the rest becomes its scope), the kind, and where needed `@scope` (the type a method
belongs to), `@body`, `@tail` (a sibling that still belongs to it), `@import` with `@module`, `@package`, and `@prefix`
for what belongs to the definition below. Earlier lines win when several match one name.

A grammar without an entry gets the generic rule of `parsing`.
"""

from __future__ import annotations

_JAVASCRIPT = """
class: class_declaration class
function: function_declaration generator_function_declaration
method: method_definition
(field_definition property: (_) @name value: [(arrow_function) (function_expression)] @body) @method
(field_definition property: (_) @name) @field
(lexical_declaration (variable_declarator name: (identifier) @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)
          (generator_function body: (_) @body)])) @function
(variable_declaration (variable_declarator name: (identifier) @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)])) @function
(expression_statement (assignment_expression left: (member_expression) @name
  right: [(arrow_function body: (_) @body) (function_expression body: (_) @body)])) @function
(expression_statement (assignment_expression left: (member_expression) @name
  right: (assignment_expression right: [(arrow_function body: (_) @body) (function_expression body: (_) @body)])))
  @function
(expression_statement (assignment_expression left: (member_expression) @name right: (class))) @class
(pair key: [(property_identifier) (string)] @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @method
(program (lexical_declaration (variable_declarator name: (identifier) @name)) @constant)
(program (variable_declaration (variable_declarator name: (identifier) @name)) @constant)
(export_statement (lexical_declaration (variable_declarator name: (identifier) @name)) @constant)
(import_statement source: (string) @module) @import
(export_statement source: (string) @module) @import
(program (_ (variable_declarator value: (call_expression function: (identifier) @_f arguments: (arguments . (string)
  @module .)))) @import (#eq? @_f "require"))
(program (_ (variable_declarator value: (member_expression object: (call_expression function: (identifier) @_f
  arguments: (arguments . (string) @module .))))) @import (#eq? @_f "require"))
"""

_TYPESCRIPT = (
    """
interface: interface_declaration
class: abstract_class_declaration
type: type_alias_declaration
enum: enum_declaration
module: internal_module module
function: function_signature
method: abstract_method_signature
(interface_body (method_signature name: (_) @name) @method)
(public_field_definition name: (_) @name value: (arrow_function) @body) @method
(public_field_definition name: (_) @name) @field
(class_body (decorator) @prefix)
"""
    + _JAVASCRIPT
).replace(
    """(field_definition property: (_) @name value: [(arrow_function) (function_expression)] @body) @method
(field_definition property: (_) @name) @field
""",
    "",
)

_C = """
struct: struct_specifier union_specifier
enum: enum_specifier
macro: preproc_function_def
constant: preproc_def
(function_definition declarator: (function_declarator declarator: (_) @name)) @function
(function_definition declarator: (_ (function_declarator declarator: (_) @name))) @function
(function_definition declarator: (_ (_ (function_declarator declarator: (_) @name)))) @function
(type_definition declarator: (type_identifier) @name) @type
(translation_unit (declaration declarator: (function_declarator declarator: (identifier) @name)) @function)
(translation_unit (declaration declarator: (init_declarator declarator: (identifier) @name)) @constant)
(preproc_include path: (_) @module) @import
"""

_SCHEME = """
(list . (symbol) @_f . [(symbol) @name (list . (symbol) @name)] (#match? @_f "^define-(syntax|macro)")) @macro
(list . (symbol) @_f . (list . (symbol) @name) (#match? @_f "^define")) @function
(list . (symbol) @_f . (symbol) @name (list . (symbol) @_l) (#eq? @_f "define") (#match? @_l "lambda")) @function
(program (list . (symbol) @_f . (symbol) @name (#match? @_f "^define")) @constant)
(list . (symbol) @_f . (_) @module (#any-of? @_f "require" "import" "use-modules")) @import
"""

TAGS: dict[str, str] = {
    "bash": """
function: function_definition
(program (variable_assignment name: (_) @name) @constant)
(program (declaration_command (variable_assignment name: (_) @name)) @constant)
(command name: (command_name) @_f . argument: (_) @module (#any-of? @_f "source" ".")) @import
""",
    "c": _C,
    "clojure": """
(list_lit . (sym_lit) @_f . (sym_lit) @name (#match? @_f "^def")) @function
(list_lit . (sym_lit) @_f . (sym_lit) @package (#eq? @_f "ns")) @import
""",
    "cpp": _C
    + """
class: class_specifier
module: namespace_definition
type: alias_declaration concept_definition
(field_declaration declarator: (function_declarator declarator: (field_identifier) @name)) @method
(field_declaration declarator: (_ (function_declarator declarator: (field_identifier) @name))) @method
(field_declaration declarator: (field_identifier) @name) @field
""",
    "csharp": """
class: class_declaration
struct: struct_declaration record_declaration
interface: interface_declaration
enum: enum_declaration
type: delegate_declaration
method: method_declaration constructor_declaration destructor_declaration local_function_statement
field: property_declaration event_declaration
module: namespace_declaration
(operator_declaration operator: _ @name) @method
(field_declaration (variable_declaration (variable_declarator name: (_) @name))) @field
(event_field_declaration (variable_declaration (variable_declarator name: (_) @name))) @field
(indexer_declaration "this" @name) @method
(file_scoped_namespace_declaration name: (_) @package)
(using_directive (_) @module) @import
""",
    "dart": """
class: class_definition
enum: enum_declaration
extension: extension_declaration
(mixin_declaration (identifier) @name) @class
(type_alias . (type_identifier) @name) @type
((function_signature name: (_) @name) @function . (function_body)? @tail)
((getter_signature name: (_) @name) @method . (function_body)? @tail)
((setter_signature name: (_) @name) @method . (function_body)? @tail)
((method_signature (function_signature name: (_) @name)) @method . (function_body)? @tail)
((method_signature (getter_signature name: (_) @name)) @method . (function_body)? @tail)
((method_signature (setter_signature name: (_) @name)) @method . (function_body)? @tail)
((method_signature (constructor_signature name: (_) @name . (formal_parameter_list))) @method . (function_body)? @tail)
((method_signature (factory_constructor_signature (identifier) @name)) @method . (function_body)? @tail)
(declaration (constructor_signature name: (_) @name . (formal_parameter_list))) @method
(declaration (initialized_identifier_list (initialized_identifier . (identifier) @name))) @field
(declaration (static_final_declaration_list (static_final_declaration . (identifier) @name))) @field
(program (static_final_declaration_list (static_final_declaration . (identifier) @name)) @constant)
(import_or_export (library_import (import_specification (configurable_uri (uri) @module)))) @import
(import_or_export (library_export (configurable_uri (uri) @module))) @import
""",
    "elixir": """
(call target: (identifier) @_f (arguments . (alias) @name) (#any-of? @_f "defmodule" "defprotocol" "defimpl")) @module
(call target: (identifier) @_f (arguments . [(call target: (identifier) @name) (identifier) @name
  (binary_operator left: [(call target: (identifier) @name) (identifier) @name])])
  (#any-of? @_f "def" "defp" "defmacro" "defmacrop" "defdelegate" "defguard" "defguardp" "defn" "defnp")) @function
(call target: (identifier) @_f (arguments . (string) @name) (#any-of? @_f "test" "describe" "property")) @test
(unary_operator operand: (call target: (identifier) @_f (arguments (binary_operator left: [(call target: (identifier)
  @name) (identifier) @name]))) (#any-of? @_f "type" "typep" "opaque" "callback" "macrocallback")) @type
(unary_operator operand: (call target: (identifier) @_f)
  (#any-of? @_f "doc" "spec" "impl" "deprecated" "typedoc" "tag" "since")) @prefix
(call target: (identifier) @_f (arguments . (alias) @module) (#any-of? @_f "alias" "import" "require" "use")) @import
""",
    "erlang": """
(fun_decl clause: (function_clause name: (_) @name)) @function
(record_decl name: (_) @name) @struct
(type_alias name: (type_name name: (_) @name)) @type
(pp_define lhs: (macro_lhs name: (_) @name)) @macro
(module_attribute name: (_) @package)
(import_attribute module: (_) @module) @import
(pp_include file: (_) @module) @import
(spec) @prefix
""",
    "go": """
function: function_declaration
(method_declaration receiver: (parameter_list (parameter_declaration type: (_) @scope)) name: (_) @name) @method
(type_declaration . (type_spec name: (_) @name type: (struct_type)) .) @struct
(type_declaration . (type_spec name: (_) @name type: (interface_type)) .) @interface
(type_declaration . (type_spec name: (_) @name) .) @type
(type_declaration . (type_alias name: (_) @name) .) @type
(type_spec name: (_) @name type: (struct_type)) @struct
(type_spec name: (_) @name type: (interface_type)) @interface
(type_spec name: (_) @name) @type
(type_alias name: (_) @name) @type
(source_file (const_declaration . (const_spec name: (identifier) @name) .) @constant)
(source_file (var_declaration . (var_spec name: (identifier) @name) .) @constant)
(source_file (const_declaration (const_spec name: (identifier) @name) @constant))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @constant)))
(package_clause (package_identifier) @package)
(import_declaration) @import
(import_spec path: (_) @module)
""",
    "haskell": """
(declarations (function name: (_) @name) @function)
(declarations (bind name: (_) @name) @function)
(declarations (function (infix operator: (_) @name)) @function)
(class name: (_) @name) @class
(instance name: (_) @name) @impl
(class_declarations (signature name: (_) @name) @method)
(class_declarations (function name: (_) @name) @method)
(class_declarations (bind name: (_) @name) @method)
(instance_declarations (function name: (_) @name) @method)
(instance_declarations (bind name: (_) @name) @method)
type: data_type newtype type_synomym type_family data_family
(declarations (signature) @prefix)
(header module: (_) @package)
(import module: (_) @module) @import
""",
    "java": """
class: class_declaration record_declaration
interface: interface_declaration annotation_type_declaration
enum: enum_declaration
method: method_declaration constructor_declaration compact_constructor_declaration annotation_type_element_declaration
(field_declaration declarator: (variable_declarator name: (_) @name)) @field
(constant_declaration declarator: (variable_declarator name: (_) @name)) @constant
(package_declaration (_) @package)
(import_declaration (_) @module) @import
""",
    "javascript": _JAVASCRIPT,
    "julia": """
(module_definition name: (_) @name) @module
(function_definition (signature (call_expression . (_) @name))) @function
(function_definition (signature (_ (call_expression . (_) @name)))) @function
(function_definition (signature (_ (_ (call_expression . (_) @name))))) @function
(assignment . (call_expression . (_) @name)) @function
(assignment . (where_expression (call_expression . (_) @name))) @function
(macro_definition (signature (call_expression . (_) @name))) @macro
(struct_definition (type_head) @name) @struct
(abstract_definition (type_head) @name) @type
(const_statement (assignment . (identifier) @name)) @constant
((string_literal) @prefix . [(function_definition) (struct_definition) (macro_definition) (assignment)
  (abstract_definition) (const_statement) (module_definition)])
(using_statement (_) @module) @import
(import_statement (_) @module) @import
""",
    "kotlin": """
(class_declaration "interface" (type_identifier) @name) @interface
(class_declaration "enum" (type_identifier) @name) @enum
(class_declaration (type_identifier) @name) @class
(object_declaration (type_identifier) @name) @object
(companion_object "companion" @name) @object
(function_declaration (receiver_type)? @scope (simple_identifier) @name) @function
(secondary_constructor "constructor" @name) @method
(property_declaration (variable_declaration . (simple_identifier) @name)) @field
(type_alias . (type_identifier) @name) @type
(package_header (identifier) @package)
(import_header (identifier) @module) @import
""",
    "lua": """
function: function_declaration
(variable_declaration (assignment_statement (variable_list . name: (_) @name)
  (expression_list . value: (function_definition body: (_)? @body)))) @function
(assignment_statement (variable_list . name: (_) @name)
  (expression_list . value: (function_definition body: (_)? @body))) @function
(field name: (identifier) @name value: (function_definition body: (_)? @body)) @method
(chunk (variable_declaration (assignment_statement (variable_list . name: (identifier) @name))) @constant)
(chunk (variable_declaration (assignment_statement (expression_list . value: (function_call name: (identifier) @_f
  arguments: (arguments . (string) @module))))) @import (#eq? @_f "require"))
""",
    "objc": _C
    + """
(class_interface . (identifier) @name) @class
(class_implementation . (identifier) @name) @class
(protocol_declaration . (identifier) @name) @interface
(method_definition (identifier) @name) @method
(method_declaration (identifier) @name) @method
""",
    "ocaml": """
(value_definition (let_binding pattern: (value_name) @name (parameter))) @function
(value_definition (let_binding pattern: (value_name) @name body: (function_expression))) @function
(value_definition (let_binding pattern: (value_name) @name body: (fun_expression))) @function
(value_definition (let_binding pattern: (value_name) @name)) @constant
(module_definition (module_binding (module_name) @name)) @module
(module_type_definition (module_type_name) @name) @interface
(type_definition (type_binding name: (_) @name)) @type
(class_definition (class_binding (class_name) @name)) @class
(method_definition (method_name) @name) @method
(exception_definition (constructor_declaration (constructor_name) @name)) @type
(external (value_name) @name) @function
(open_module module: (_) @module) @import
""",
    "ocaml_interface": """
(value_specification (value_name) @name) @function
(module_definition (module_binding (module_name) @name)) @module
(module_type_definition (module_type_name) @name) @interface
(type_definition (type_binding name: (_) @name)) @type
(open_module module: (_) @module) @import
""",
    "perl": """
function: subroutine_declaration_statement
method: method_declaration_statement
class: class_statement
(package_statement name: (_) @package)
(use_statement module: (_) @module) @import
""",
    "php": """
class: class_declaration
interface: interface_declaration
trait: trait_declaration
enum: enum_declaration
function: function_definition
method: method_declaration
(property_declaration (property_element name: (variable_name (name) @name))) @field
(const_declaration (const_element . (name) @name)) @constant
(namespace_definition name: (_) @package)
(namespace_use_declaration (namespace_use_clause (_) @module)) @import
""",
    "powershell": """
(function_statement (function_name) @name) @function
(class_statement (simple_name) @name) @class
(enum_statement (simple_name) @name) @enum
(class_method_definition (simple_name) @name) @method
""",
    "proto": """
(message (message_name) @name) @struct
(enum (enum_name) @name) @enum
(service (service_name) @name) @interface
(rpc (rpc_name) @name) @method
(package (full_ident) @package)
(import path: (_) @module) @import
""",
    "python": """
function: function_definition
class: class_definition
(module (assignment left: (identifier) @name) @constant)
(module (expression_statement (assignment left: (identifier) @name)) @constant)
(class_definition body: (block (assignment left: (identifier) @name) @field))
(class_definition body: (block (expression_statement (assignment left: (identifier) @name)) @field))
(module (type_alias_statement left: (type) @name) @type)
(import_statement name: [(dotted_name) @module (aliased_import name: (_) @module)]) @import
(import_from_statement module_name: (_) @module) @import
(future_import_statement) @import
""",
    "r": """
(binary_operator lhs: (_) @name operator: ["<-" "=" "<<-"] rhs: (function_definition body: (_) @body)) @function
(program (binary_operator lhs: (identifier) @name operator: ["<-" "="]) @constant)
(call function: (_) @_f arguments: (arguments . (argument value: (_) @module))
  (#any-of? @_f "library" "require" "source" "requireNamespace")) @import
""",
    "racket": _SCHEME,
    "ruby": """
class: class
module: module
method: method singleton_method
(assignment left: (constant) @name) @constant
(call method: (identifier) @_f arguments: (argument_list . (string) @module)
  (#any-of? @_f "require" "require_relative" "load")) @import
(call method: (identifier) @_f arguments: (argument_list . (_) @name) (#any-of? @_f "attr_accessor" "attr_reader"))
  @field
(call method: (identifier) @_f arguments: (argument_list . (simple_symbol) @name) block: (_) @body
  (#eq? @_f "define_method")) @method
""",
    "rust": """
function: function_item function_signature_item
struct: struct_item union_item
enum: enum_item
trait: trait_item
module: mod_item
macro: macro_definition
type: type_item associated_type
constant: const_item static_item
(impl_item type: (_) @name) @impl
(attribute_item) @prefix
(use_declaration argument: (_) @module) @import
(extern_crate_declaration name: (_) @module) @import
""",
    "scala": """
class: class_definition
object: object_definition package_object
trait: trait_definition
enum: enum_definition
function: function_definition function_declaration
type: type_definition
(given_definition name: (_) @name) @constant
(template_body (val_definition pattern: (identifier) @name) @field)
(template_body (var_definition pattern: (identifier) @name) @field)
(template_body (val_declaration name: (identifier) @name) @field)
(compilation_unit (val_definition pattern: (identifier) @name) @constant)
(package_clause name: (_) @package)
(import_declaration) @import @module
""",
    "scheme": _SCHEME,
    "sql": """
(create_table (object_reference) @name) @struct
(create_view (object_reference) @name) @type
(create_materialized_view (object_reference) @name) @type
(create_function (object_reference) @name) @function
(create_trigger . (_) (object_reference) @name) @function
(create_type (object_reference) @name) @type
""",
    "swift": """
(class_declaration declaration_kind: "struct" name: (_) @name) @struct
(class_declaration declaration_kind: "enum" name: (_) @name) @enum
(class_declaration declaration_kind: "extension" name: (_) @name) @extension
class: class_declaration
interface: protocol_declaration
(function_declaration name: (simple_identifier) @name) @function
(function_declaration "func" . name: (_) @name) @function
(protocol_function_declaration name: (simple_identifier) @name) @method
type: typealias_declaration
(init_declaration "init" @name) @method
(deinit_declaration "deinit" @name) @method
(subscript_declaration "subscript" @name) @method
(property_declaration name: (pattern bound_identifier: (_) @name)) @field
(protocol_property_declaration name: (pattern bound_identifier: (_) @name)) @field
(import_declaration (identifier) @module) @import
""",
    "tsx": _TYPESCRIPT,
    "typescript": _TYPESCRIPT,
    "zig": """
(Decl (VarDecl variable_type_function: (_) @name (ErrorUnionExpr (SuffixExpr (ContainerDecl) @body)))) @struct
(Decl (FnProto function: (_) @name)) @function
(source_file (Decl (VarDecl variable_type_function: (_) @name)) @constant)
(ContainerDecl (Decl (VarDecl variable_type_function: (_) @name)) @constant)
(TestDecl (STRINGLITERALSINGLE) @name) @test
(TestDecl (IDENTIFIER) @name) @test
(Decl (VarDecl (ErrorUnionExpr (SuffixExpr (BUILTINIDENTIFIER) @_f (FnCallArguments (ErrorUnionExpr (SuffixExpr
  (STRINGLITERALSINGLE) @module)))))) (#eq? @_f "@import")) @import
""",
}

# Where the first word of a form says what it defines: that word (captured as `@_f`) -> kind,
# for each language.
_KEYWORD_KINDS = {
    "defimpl": "impl",
    "definterface": "interface",
    "defmacro": "macro",
    "defmacrop": "macro",
    "defprotocol": "interface",
    "defrecord": "class",
    "deftype": "class",
}
KEYWORD_KINDS = {
    "clojure": _KEYWORD_KINDS | {"def": "constant", "defonce": "constant"},
    "elixir": _KEYWORD_KINDS,
}

# A definition that is spread over neighbours of the same name (equations, clauses) is one definition.
CLAUSE_LANGUAGES = frozenset({"haskell", "elixir", "erlang", "purescript"})

# The node around a definition that belongs to it.
WRAPPERS = frozenset(
    {
        "ambient_declaration",
        "decorated_definition",
        "export_declaration",
        "export_statement",
        "template_declaration",
    }
)

# Words in a node type -> kind, for the generic rule; the first that occurs wins.
KIND_WORDS = (
    ("method", "method"),
    ("constructor", "method"),
    ("rpc", "method"),
    ("function", "function"),
    ("func", "function"),
    ("procedure", "function"),
    ("subroutine", "function"),
    ("task", "function"),
    ("macro", "macro"),
    ("interface", "interface"),
    ("protocol", "interface"),
    ("service", "interface"),
    ("trait", "trait"),
    ("class", "class"),
    ("contract", "class"),
    ("object", "object"),
    ("struct", "struct"),
    ("record", "struct"),
    ("message", "struct"),
    ("enum", "enum"),
    ("module", "module"),
    ("namespace", "module"),
    ("library", "module"),
    ("package", "module"),
    ("type", "type"),
    ("const", "constant"),
)
