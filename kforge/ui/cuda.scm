; CUDA C++ for the editor: complete in itself (the editor knows no inherited queries), capture names without further
; parts that kforge/ui/themes.py colours, and patterns that do not overlap, so that their order does not matter.

(comment) @comment
[(string_literal) (system_lib_string) (raw_string_literal) (char_literal)] @string
(number_literal) @number
[(true) (false) (null)] @constant
[(primitive_type) (sized_type_specifier) (type_identifier) (auto)] @type
(this) @keyword

[
  "break" "case" "catch" "class" "const" "constexpr" "continue" "default" "delete" "do" "else" "enum" "explicit"
  "extern" "for" "friend" "goto" "if" "inline" "namespace" "new" "noexcept" "operator" "private" "protected" "public"
  "return" "sizeof" "static" "static_assert" "struct" "switch" "template" "throw" "try" "typedef" "typename" "union"
  "using" "virtual" "volatile" "while"
] @keyword

[
  "__global__" "__device__" "__host__" "__forceinline__" "__noinline__" "__shared__" "__constant__" "__managed__"
  "__grid_constant__" "__launch_bounds__" "__restrict__"
] @attribute
["<<<" ">>>"] @attribute

["#define" "#elif" "#else" "#endif" "#if" "#ifdef" "#ifndef" "#include" (preproc_directive)] @preprocessor
(preproc_def name: (identifier) @constant)
(preproc_function_def name: (identifier) @function)

(call_expression function: (identifier) @call)
(call_expression function: (qualified_identifier name: (identifier) @call))
(call_expression function: (field_expression field: (field_identifier) @call))
(template_function name: (identifier) @call)
(function_declarator declarator: (identifier) @function)

((identifier) @builtin
  (#any-of? @builtin "threadIdx" "blockIdx" "blockDim" "gridDim" "warpSize"))
