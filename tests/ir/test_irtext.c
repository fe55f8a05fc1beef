/* IR text: printing and parsing, exact messages for malformed text, random mutations. */
#include "ir/irtext.h"
#include "ir/random.h"
#include "tests/ir/toy_ops.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

/* A text with every construct, as graph_print writes it. */
static const char VALID[] =
    "ir 1\n"
    "input pixel_values : f32[N, 4]\n"
    "input \"odd name:0\" : i32[N, T, S, M, 3]\n"
    "param @vit.w : f32[4, 4] init trunc_normal(0.02) frozen\n"
    "param @\"dense/kernel:0\" : f16[4] init ones\n"
    "param @m : bf16[4, 4] init identity\n"
    "param @scalar : f64[] frozen\n"
    "param @empty : i8[0, 7]\n"
    "param @cut : f32[5, 2] init ones kept 0=[0-2, 7, 9223372036854775807] 1=[3-4] "
    "frozen\n"
    "param @row : f32[2, 3] kept 0=[] 1=[5, 8-9]\n"
    "%9 = linear($pixel_values, @vit.w, bias=@\"dense/kernel:0\") : f32[N, 4] at "
    "encoder.0 as q\n"
    "%10 = linear(%9, @m) : f32[N, 4] at encoder as final_norm\n"
    "%11 = sum(%9, %10, %9) {weights=[0.5, -1.0, 1e-07]} : f32[N, 4] as residual1\n"
    "%12 = blend(mask=%9, %10, %11) : f32[N, 4] at \"my stack.12\"\n"
    "%13 = blend(%10) : f32[N, 4]\n"
    "%14 = lookup(%13, $\"odd name:0\") : f32[N, 4]\n"
    "%15 = knobs(%14) {flag=true size=7 rate=-0.25 label=\"a \\\"b\\\"\\n\" fn=gelu "
    "axes=[1, 2] points=[1.0, 2.5] tags=[\"x\", \"\"] extra={\"k\":[1,null,\"v\"]}} : "
    "f32[N, 4]\n"
    "%16 = knobs(%15) {label=null} : f32[N, 4]\n"
    "output logits = %16\n"
    "output \"the weight\" = @vit.w\n"
    "output input = $pixel_values\n";

/* Parses and, when that works, prints; NULL with the diagnostics filled otherwise. The
 * result is to be freed. */
static char *reprint(const char *text, size_t length, Diag *diag) {
    Arena *arena = arena_create();
    Graph *graph = NULL;
    Text out = {0};
    Status status = graph_parse(&graph, arena, &TOY_OPS, "a.ir", text, length, diag);
    if (status == STATUS_OK) graph_print(&out, graph);
    if (status != STATUS_OK) assert_int_equal(status, STATUS_FORMAT);
    arena_destroy(arena);
    return out.data;
}

static void check_print(const char *text, const char *expected) {
    Diag *diag = diag_create();
    char *printed = reprint(text, strlen(text), diag);
    if (!printed) diag_print(diag, stderr);
    assert_non_null(printed);
    assert_string_equal(printed, expected);
    free(printed);
    diag_destroy(diag);
}

static void test_fixed_point(void **state) {
    (void)state;
    check_print(VALID, VALID);
}

/* Types with groups. */
static void test_quantised(void **state) {
    (void)state;
    static const char TEXT[] = "ir 1\n"
                               "param @bytes : q8[2, 3] init normal(0.02) kept 0=[5, 9]\n"
                               "param @halves : q4_64[6, 130] frozen\n"
                               "param @offset : q4z_32[6, 2, 65]\n"
                               "output y = @bytes\n";
    check_print(TEXT, TEXT);
}

static void test_values(void **state) {
    (void)state;
    static const float VALUES[] = {3, -4, 0, 12, 0, 0};
    static const char WANT[] =
        "ir 1\nparam @w : f32[2, 3] frozen # norm 13 min -4 max 12 "
        "zeros 3 hash ";
    const char *text = "ir 1\nparam @w : f32[2, 3] frozen\noutput y = @w\n";
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Graph *graph = NULL;
    Text out = {0};
    void *data;
    char hash[HASH_TEXT_BYTES];
    assert_ok(graph_parse(&graph, arena, &TOY_OPS, "a.ir", text, strlen(text), diag),
              diag);
    graph_print_values(&out, graph);
    assert_string_equal(out.data, text); /* no data, no comment */
    text_free(&out);
    Tensor *tensor = &graph->storages[0]->tensor;
    assert_ok(tensor_create(tensor, DTYPE_F32, 2, (int64_t[]){2, 3}, diag), diag);
    assert_ok(tensor_writable(tensor, &data, diag), diag);
    memcpy(data, VALUES, sizeof VALUES);
    graph_print_values(&out, graph);
    tensor_hash(tensor, hash);
    assert_memory_equal(out.data, WANT, strlen(WANT));
    assert_memory_equal(out.data + strlen(WANT), hash, strlen(hash));
    char *again = reprint(out.data, out.length, diag);
    assert_string_equal(again, text);
    free(again);
    text_free(&out);
    graph_release(graph);
    arena_destroy(arena);
    diag_destroy(diag);
}

/* The nodes of VALID as version 2 has them. */
static const char NAMED[] =
    "%encoder.0.q = linear($pixel_values, @vit.w, bias=@\"dense/kernel:0\") : f32[N, 4] at "
    "encoder.0 as q\n"
    "%encoder.final_norm = linear(%encoder.0.q, @m) : f32[N, 4] at encoder as final_norm\n"
    "%residual1 = sum(%encoder.0.q, %encoder.final_norm, %encoder.0.q) {weights=[0.5, -1.0, "
    "1e-07]} : f32[N, 4] as residual1\n"
    "%\"my stack.12.blend\" = blend(mask=%encoder.0.q, %encoder.final_norm, %residual1) : "
    "f32[N, 4] at \"my stack.12\"\n"
    "%blend = blend(%encoder.final_norm) : f32[N, 4]\n"
    "%lookup = lookup(%blend, $\"odd name:0\") : f32[N, 4]\n"
    "%knobs = knobs(%lookup) {flag=true size=7 rate=-0.25 label=\"a \\\"b\\\"\\n\" fn=gelu "
    "axes=[1, 2] points=[1.0, 2.5] tags=[\"x\", \"\"] extra={\"k\":[1,null,\"v\"]}} : "
    "f32[N, 4]\n"
    "%knobs.2 = knobs(%knobs) {label=null} : f32[N, 4]\n"
    "output logits = %knobs.2\n";

/* Parses a text and prints it with names; to be freed. */
static char *print_named(const char *text) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Graph *graph;
    Text out = {0};
    assert_ok(graph_parse(&graph, arena, &TOY_OPS, "a.ir", text, strlen(text), diag),
              diag);
    graph_print_named(&out, graph, false);
    diag_destroy(diag);
    arena_destroy(arena);
    return out.data;
}

/* Names tell place and role, with a number where they are taken; what they say in a text
 * does not matter, and both versions are the same graph. */
static void test_named(void **state) {
    (void)state;
    char *named = print_named(VALID);
    assert_memory_equal(named, "ir 2\ninput pixel_values", 23);
    assert_non_null(strstr(named, NAMED));
    char *again = print_named(named);
    assert_string_equal(again, named);
    check_print(named, VALID);
    free(again);
    free(named);
    check_print("ir 2\ninput x : f32[N, 4]\n%\"any thing\" = knobs($x) : f32[N, 4]\n"
                "%7 = knobs(%\"any thing\") : f32[N, 4]\noutput y = %7\n",
                "ir 1\ninput x : f32[N, 4]\n%1 = knobs($x) : f32[N, 4]\n"
                "%2 = knobs(%1) : f32[N, 4]\noutput y = %2\n");
}

/* Stacks may be called as names are, and be too long for one. */
static void test_names_taken(void **state) {
    (void)state;
    char *text = print_named("ir 1\ninput x : f32[N, 4]\n"
                             "%1 = knobs($x) : f32[N, 4] at a.knobs.2\n"
                             "%2 = knobs(%1) : f32[N, 4] at a\n"
                             "%3 = knobs(%2) : f32[N, 4] at a\n"
                             "%4 = knobs(%3) : f32[N, 4] at a.knobs\n"
                             "output y = %4\n");
    assert_non_null(strstr(text, "\n%a.knobs.2.knobs = knobs($x)"));
    assert_non_null(strstr(text, "\n%a.knobs = knobs(%a.knobs.2.knobs)"));
    assert_non_null(strstr(text, "\n%a.knobs.2 = knobs(%a.knobs)"));
    assert_non_null(strstr(text, "\n%a.knobs.knobs = knobs(%a.knobs.2)"));
    free(text);
    Text longest = {0};
    text_add(&longest,
             "ir 1\ninput x : f32[N, 4]\n%%1 = knobs($x) : f32[N, 4] at %0500d\n"
             "output y = %%1\n",
             0);
    text = print_named(longest.data);
    assert_non_null(strstr(text, "\n%knobs = knobs($x)"));
    free(text);
    text_free(&longest);
}

static void test_normalized(void **state) {
    (void)state;
    check_print("\n# a comment\n  ir 1 # version\r\n\tparam@w:f32[4,4]init normal( 1 )\n"
                "input \"x\":f32[N,4]#\n%900=linear($x,@w){}:f32[N,4]at e.007\n"
                "%5=knobs(%900){label=\"\\u00e9\\ud83d\\ude00\\/\" size=4 rate=1}:"
                "f32[N,4] as none\n\noutput y=%5",
                "ir 1\ninput x : f32[N, 4]\nparam @w : f32[4, 4] init normal(1.0)\n"
                "%2 = linear($x, @w) : f32[N, 4] at e.7\n"
                "%3 = knobs(%2) {rate=1.0 label=\"\u00e9\U0001f600/\"} : f32[N, 4]\n"
                "output y = %3\n");
    check_print("ir 1\nparam@w:f32[4,2]kept 0=[ 0 ,1-2,\t3 ]1=[00-1]frozen\noutput y=@w",
                "ir 1\nparam @w : f32[4, 2] kept 0=[0-3] 1=[0-1] frozen\n"
                "output y = @w\n");
}

#define LEAVES      "ir 1\ninput x : f32[N, 4]\nparam @w : f32[4, 4]\n"
#define NODE(text)  LEAVES text "\n"
#define ATTRS(text) LEAVES "%1 = knobs($x) {" text "} : f32[N, 4]\n"

/* Each text with all that is printed about it. */
static const struct {
    const char *text, *message;
} MALFORMED[] = {
    {"",
     "a.ir:1:1: error: expected 'ir 1' or 'ir 2' before all else, found the end of the text\n"},
    {"# nothing\n",
     "a.ir:2:1: error: expected 'ir 1' or 'ir 2' before all else, found the end of the text\n"},
    {"graph 1\n",
     "a.ir:1:1: error: expected 'ir 1' or 'ir 2' before all else, found 'graph'\n"},
    {"ir 3\n", "a.ir:1:4: error: version 3 of IR text is not known, expected 1 or 2\n"},
    {"ir 2\ninput x : f32[N, 4]\n%a = knobs(%b) : f32[N, 4]\n",
     "a.ir:3:12: error: '%b' is not defined above\n"},
    {"ir 2\ninput x : f32[N, 4]\n%a = knobs($x) : f32[N, 4]\n%a = knobs($x) : f32[N, "
     "4]\n",
     "a.ir:4:1: error: '%a' is defined twice\n"},
    {"ir 2\ninput x : f32[N, 4]\n% = knobs($x) : f32[N, 4]\n",
     "a.ir:3:3: error: expected a node's name, found '='\n"},
    {"ir one\n", "a.ir:1:4: error: expected a version, found 'one'\n"},
    {"ir 1 2\n", "a.ir:1:6: error: expected the end of the line, found '2'\n"},
    {"ir 1\nfoo\n",
     "a.ir:2:1: error: expected 'input', 'param', 'output' or '%', found 'foo'\n"},
    {"ir 1\ninput : f32[]\n", "a.ir:2:7: error: expected an input's name, found ':'\n"},
    {"ir 1\ninput \"\" : f32[]\n",
     "a.ir:2:7: error: expected an input's name, found an empty string\n"},
    {"ir 1\ninput x f32[]\n", "a.ir:2:9: error: expected ':', found 'f32'\n"},
    {"ir 1\ninput x : f33[]\n", "a.ir:2:11: error: unknown element type 'f33'\n"
                                "    hint: did you mean 'f32'?\n"},
    {"ir 1\ninput x : f16[2]\n",
     "a.ir:2:11: error: an input must be f32 or i32, found f16\n"},
    {"ir 1\ninput x : q8[N, 2]\n",
     "a.ir:2:11: error: an input must be f32 or i32, found q8\n"},
    {"ir 1\nparam @w : q8[5]\n",
     "a.ir:2:7: error: a parameter of type q8 has 2 to 6 dimensions\n"},
    {"ir 1\nparam @w : q4[5, 5]\n",
     "a.ir:2:12: error: type q4 needs its groups: q4_32, q4_64, q4_128, or q4z_32, "
     "q4z_64, q4z_128 with zero points\n"},
    {"ir 1\ninput x : f32\n",
     "a.ir:2:14: error: expected '[', found the end of the line\n"},
    {"ir 1\ninput x : f32[N 2]\n", "a.ir:2:17: error: expected ',' or ']', found '2'\n"},
    {"ir 1\ninput x : f32[Q]\n",
     "a.ir:2:15: error: expected a number, N, T, S or M, found 'Q'\n"},
    {"ir 1\ninput x : f32[-3]\n",
     "a.ir:2:15: error: a dimension must be 0 to 9223372036854775807, found '-3'\n"},
    {"ir 1\ninput x : f32[9223372036854775808]\n",
     "a.ir:2:15: error: a dimension must be 0 to 9223372036854775807, found "
     "'9223372036854775808'\n"},
    {"ir 1\ninput x : f32[4294967296, 4294967296]\n",
     "a.ir:2:11: error: the type's size does not fit 63 bits\n"},
    {"ir 1\ninput x : f32[1, 2, 3, 4, 5, 6, 7]\n",
     "a.ir:2:11: error: a type has at most 6 dimensions\n"},
    {"ir 1\ninput x : f32[2,\n",
     "a.ir:2:17: error: expected a number, N, T, S or M, found the end of the line\n"},
    {"ir 1\ninput x : f32[2] y\n",
     "a.ir:2:18: error: expected the end of the line, found 'y'\n"},
    {"ir 1\ninput \"x : f32[]\n",
     "a.ir:2:7: error: the string has no closing quote on its line\n"},
    {"ir 1\ninput \"\\q\" : f32[]\n",
     "a.ir:2:8: error: expected an escape of JSON in the string, found '\\q'\n"},
    {"ir 1\ninput \"\\ud800\" : f32[]\n",
     "a.ir:2:8: error: expected an escape of JSON in the string, found '\\u'\n"},
    {"ir 1\ninput \"\xff\" : f32[]\n", "a.ir:2:7: error: the string is not UTF-8\n"},
    {NODE("input x : f32[]"), "a.ir:4:7: error: '$x' is defined twice\n"},
    {NODE("param w : f32[2]"), "a.ir:4:7: error: expected '@', found 'w'\n"},
    {NODE("param @w : f32[2]"), "a.ir:4:7: error: '@w' is defined twice\n"},
    {NODE("param @v : f32[N]"), "a.ir:4:16: error: expected a dimension, found 'N'\n"},
    {NODE("param @v : f32[2] init random"),
     "a.ir:4:24: error: unknown initialisation 'random'\n"},
    {NODE("param @v : f32[2] init onse"),
     "a.ir:4:24: error: unknown initialisation 'onse'\n"
     "    hint: did you mean 'ones'?\n"},
    {NODE("param @v : f32[2] init normal"),
     "a.ir:4:30: error: expected '(', found the end of the line\n"},
    {NODE("param @v : f32[2] init normal(-1)"),
     "a.ir:4:31: error: a standard deviation must be at least 0, found -1\n"},
    {NODE("param @v : f32[2] init normal(1e999)"),
     "a.ir:4:31: error: the number 1e999 is too large for a double\n"},
    {NODE("param @v : i32[2] init normal(1)"),
     "a.ir:4:7: error: @v: normal initial values need a real type, found i32\n"},
    {NODE("param @v : f32[2, 3] init identity"),
     "a.ir:4:7: error: @v: the identity needs a square matrix, found [2, 3]\n"},
    {NODE("param @v : f32[2] frozen init ones"),
     "a.ir:4:26: error: expected the end of the line, found 'init'\n"},
    {NODE("param @v : f32[2] kept"),
     "a.ir:4:23: error: expected an axis, found the end of the line\n"},
    {NODE("param @v : f32[2] kept 1=[0-1]"),
     "a.ir:4:24: error: '@v' has 1 axes, found axis 1\n"},
    {NODE("param @v : f32[2] kept 0 [0-1]"),
     "a.ir:4:26: error: expected '=', found '['\n"},
    {NODE("param @v : f32[2] kept 0=[,]"),
     "a.ir:4:27: error: expected an index or a range, found ','\n"},
    {NODE("param @v : f32[2] kept 0=[] 0=[0-1]"),
     "a.ir:4:29: error: axis 0 is given twice\n"},
    {NODE("param @v : f32[2] kept 0=[0-x]"),
     "a.ir:4:27: error: expected an index or a range like 0-63, found '0-x'\n"},
    {NODE("param @v : f32[2] kept 0=[-1-0]"),
     "a.ir:4:27: error: expected an index or a range like 0-63, found '-1-0'\n"},
    {NODE("param @v : f32[2] kept 0=[3-2]"),
     "a.ir:4:27: error: expected an index or a range like 0-63, found '3-2'\n"},
    {NODE("param @v : f32[2] kept 0=[9223372036854775808]"),
     "a.ir:4:27: error: expected an index or a range like 0-63, found "
     "'9223372036854775808'\n"},
    {NODE("param @v : f32[2] kept 0=[4, 4]"),
     "a.ir:4:30: error: the indices must increase, found 4 after 4\n"},
    {NODE("param @v : f32[2] kept 0=[4 5]"),
     "a.ir:4:29: error: expected ',' or ']', found '5'\n"},
    {NODE("param @v : f32[2] kept 0=[4, 5"),
     "a.ir:4:31: error: expected ',' or ']', found the end of the line\n"},
    {NODE("param @v : f32[2] kept 0=[0-9223372036854775807]"),
     "a.ir:4:24: error: axis 0 keeps 9223372036854775807 indices, its dimension is 2\n"},
    {NODE("param @v : f32[2] kept 0=[4, 7] 0=[4, 7]"),
     "a.ir:4:33: error: axis 0 is given twice\n"},
    {NODE("param @v : i32[2305843009213693900]\nparam @u : i32[99]"),
     "a.ir:5:7: error: @u: the storages up to here do not fit 63 bits\n"},
    {NODE("% = add($x, $x) : f32[N, 4]"),
     "a.ir:4:3: error: expected a node's number, found '='\n"},
    {NODE("%-1 = add($x, $x) : f32[N, 4]"),
     "a.ir:4:2: error: a node's number must be 0 to 2147483647, found '-1'\n"},
    {NODE("%99999999999 = add($x, $x) : f32[N, 4]"),
     "a.ir:4:2: error: a node's number must be 0 to 2147483647, found '99999999999'\n"},
    {NODE("%1 add($x, $x) : f32[N, 4]"), "a.ir:4:4: error: expected '=', found 'add'\n"},
    {NODE("%1 = lineer($x, @w) : f32[N, 4]"), "a.ir:4:6: error: unknown op 'lineer'\n"
                                              "    hint: did you mean 'linear'?\n"},
    {NODE("%1 = input() : f32[N, 4]"),
     "a.ir:4:6: error: 'input' is a leaf: it has a line of its own, 'input ... : "
     "type'\n"},
    {NODE("%1 = add($x, %2) : f32[N, 4]\n%2 = add($x, $x) : f32[N, 4]"),
     "a.ir:4:14: error: '%2' is not defined above\n"},
    {NODE("%1 = add($x, %1) : f32[N, 4]"),
     "a.ir:4:14: error: '%1' is not defined above\n"},
    {NODE("%1 = add($x, $y) : f32[N, 4]"),
     "a.ir:4:14: error: '$y' is not defined above\n"},
    {NODE("%1 = add($x, @x) : f32[N, 4]"),
     "a.ir:4:14: error: '@x' is not defined above\n"},
    {NODE("%1 = add($x) : f32[N, 4]"), "a.ir:4:1: error: add: operand 'b' is missing\n"},
    {NODE("%1 = add($x, $x, $x) : f32[N, 4]"),
     "a.ir:4:18: error: add has no further operand without a name\n"},
    {NODE("%1 = add($x $x) : f32[N, 4]"),
     "a.ir:4:13: error: expected ',' or ')', found '$'\n"},
    {NODE("%1 = add($x, x) : f32[N, 4]"), "a.ir:4:15: error: expected '=', found ')'\n"},
    {NODE("%1 = linear($x, weight=@w) : f32[N, 4]"),
     "a.ir:4:17: error: linear: operand 'weight' is written without its name\n"},
    {NODE("%1 = linear($x, @w, bais=@w) : f32[N, 4]"),
     "a.ir:4:21: error: unknown operand 'bais'\n"
     "    hint: did you mean 'bias'?\n"},
    {NODE("%1 = linear($x, @w, bias=@w, bias=@w) : f32[N, 4]"),
     "a.ir:4:30: error: linear: operand 'bias' is given twice\n"},
    {NODE("%1 = linear(@w, $x) : f32[N, 4]"),
     "a.ir:4:23: error: declared f32[N, 4], operands give f32[4, N]\n"},
    {NODE("%1 = sum() : f32[N, 4]"),
     "a.ir:4:1: error: sum: expected at least 1 operand, found 0\n"},
    {NODE("%1 = lookup($x, $x) : f32[N, 4]"),
     "a.ir:4:1: error: lookup: operand 'index' must be i32, found f32\n"},
    {NODE("%1 = add($x, $x) : f32[N, 5]"),
     "a.ir:4:20: error: declared f32[N, 5], operands give f32[N, 4]\n"},
    {NODE("%1 = add($x, $x) {size=3} : f32[N, 4]"),
     "a.ir:4:19: error: size: unknown key\n"
     "    hint: no keys are known here\n"},
    {NODE("%1 = add($x, $x)"),
     "a.ir:4:17: error: expected ':', found the end of the line\n"},
    {NODE("%1 = add($x, $x) : f32[N, 4] at encoder.1234567"),
     "a.ir:4:33: error: expected a stack and a layer from 0 to 999999\n"},
    {NODE("%1 = add($x, $x) : f32[N, 4] at .3"),
     "a.ir:4:33: error: expected a stack and a layer from 0 to 999999\n"},
    {NODE("%1 = add($x, $x) : f32[N, 4] at a.1.2 as qq"),
     "a.ir:4:42: error: unknown role 'qq'\n"},
    {NODE("%1 = add($x, $x) : f32[N, 4] as norm11"),
     "a.ir:4:33: error: unknown role 'norm11'\n"
     "    hint: did you mean 'norm1'?\n"},
    {NODE("%1 = add($x, $x) : f32[N, 4]\n%1 = add($x, $x) : f32[N, 4]"),
     "a.ir:5:1: error: '%1' is defined twice\n"},
    {NODE("output a = %1"), "a.ir:4:12: error: '%1' is not defined above\n"},
    {NODE("output a = x"),
     "a.ir:4:12: error: expected a value ('%', '@' or '$'), found 'x'\n"},
    {NODE("output a = $x\noutput a = @w"),
     "a.ir:5:8: error: output 'a' is defined twice\n"},
    {ATTRS("size=0"),
     "a.ir:4:22: error: size: expected integer between 1 and 100, found integer 0\n"},
    {ATTRS("size=3 size=4"), "a.ir:4:24: error: size: given twice\n"},
    {ATTRS("size=3, flag=true"),
     "a.ir:4:23: error: expected an attribute's name, found ','\n"},
    {ATTRS("szie=3"), "a.ir:4:17: error: szie: unknown key; did you mean \"size\"?\n"},
    {ATTRS("size=9223372036854775808"),
     "a.ir:4:22: error: an integer must be -9223372036854775808 to "
     "9223372036854775807, found '9223372036854775808'\n"},
    {ATTRS("size=3x"), "a.ir:4:22: error: expected a number, found '3x'\n"},
    {ATTRS("rate=1e999"),
     "a.ir:4:22: error: the number 1e999 is too large for a double\n"},
    {ATTRS("rate=nan"),
     "a.ir:4:22: error: rate: expected finite number between -1 and 1, found float "
     "nan\n"},
    {ATTRS("flag=1"), "a.ir:4:22: error: flag: expected boolean, found integer 1\n"},
    {ATTRS("fn=gell"),
     "a.ir:4:20: error: fn: expected one of relu, gelu, tanh, found string \"gell\"\n"
     "    hint: did you mean \"gelu\"?\n"},
    {ATTRS("axes=[1 2]"), "a.ir:4:25: error: expected ',' or ']', found '2'\n"},
    {ATTRS("axes=[1, ]"), "a.ir:4:26: error: expected a value, found ']'\n"},
    {ATTRS("axes=[1, 10]"),
     "a.ir:4:26: error: axes[1]: expected integer between 0 and 9, found integer 10\n"},
    {ATTRS("extra={1: 2}"), "a.ir:4:24: error: expected a string, found '1'\n"},
    {ATTRS("extra={\"a\": 1, \"a\": 2}"), "a.ir:4:32: error: a: given twice\n"},
    {ATTRS("extra=[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["),
     "a.ir:4:56: error: lists are nested deeper than 32 levels\n"},
    {ATTRS("size"), "a.ir:4:21: error: expected '=', found '}'\n"},
    {ATTRS("label=\"a"),
     "a.ir:4:23: error: the string has no closing quote on its line\n"},
    {LEAVES "%1 = knobs($x) {size=3\n} : f32[N, 4]\n",
     "a.ir:4:23: error: expected an attribute's name, found the end of the line\n"},
};

static void check_fails(const char *text, size_t length, const char *message) {
    Diag *diag = diag_create();
    assert_null(reprint(text, length, diag));
    char *printed = diag_text(diag);
    assert_string_equal(printed, message);
    free(printed);
    diag_destroy(diag);
}

static void test_malformed(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof MALFORMED / sizeof *MALFORMED; i++)
        check_fails(MALFORMED[i].text, strlen(MALFORMED[i].text), MALFORMED[i].message);
}

static void test_limits(void **state) {
    (void)state;
    size_t length = ((size_t)64 << 20) + 1;
    char *text = malloc(length);
    memset(text, '\n', length);
    check_fails(text, length,
                "a.ir: error: IR text may have at most 67108864 bytes, found 67108865\n");
    free(text);
    check_fails("ir 1\n\0", 6,
                "a.ir:2:1: error: expected 'input', 'param', 'output' or '%', found byte "
                "0x00\n");
    Text many = {0};
    text_add(&many, "ir 1\n");
    for (int i = 0; i <= 1000000; i++) text_add(&many, "input %d : f32[]\n", i);
    check_fails(many.data, many.length,
                "a.ir:1000002:7: error: the graph has more than 1000000 nodes\n");
    text_free(&many);
    Text name = {0};
    text_add(&name, "ir 1\ninput ");
    for (int i = 0; i < 512; i++) text_add(&name, "a");
    size_t fits = name.length;
    text_add(&name, "a : f32[]\n");
    check_fails(name.data, name.length,
                "a.ir:2:7: error: a name may have at most 512 bytes, found 513\n");
    memcpy(name.data + fits, " ", 1);
    Diag *diag = diag_create();
    char *printed = reprint(name.data, name.length, diag);
    assert_non_null(printed);
    free(printed);
    diag_destroy(diag);
    text_free(&name);
}

static void test_attrs_parse(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *map;
    const char *text = "heads=4 act=gelu x=[1, -2.5] m={\"a\": true}";
    Loc at = {"r.yaml", 3, 10};
    assert_ok(attrs_parse(&map, arena, at, text, strlen(text), diag), diag);
    assert_int_equal(map->count, 4);
    assert_int_equal(tree_get(map, "heads")->integer, 4);
    assert_string_equal(tree_get(map, "act")->string, "gelu");
    assert_int_equal(tree_get(map, "act")->loc.line, 3);
    assert_int_equal(tree_get(map, "act")->loc.column, 22);
    assert_true(tree_get(map, "x")->last->real == -2.5);
    assert_true(tree_get(tree_get(map, "m"), "a")->boolean);
    assert_int_equal(attrs_parse(&map, arena, at, "a=", 2, diag), STATUS_FORMAT);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Random mutations. */

typedef struct Mutant {
    uint64_t key, position;
    char text[2 * sizeof VALID + 256];
    size_t length;
} Mutant;

static size_t draw(Mutant *m, size_t below) {
    return below ? (size_t)(random_u64(m->key, m->position++) % below) : 0;
}

/* Replaces `count` bytes at `at` by `with`, when there is room. */
static void splice(Mutant *m, size_t at, size_t count, const char *with, size_t length) {
    if (m->length - count + length > sizeof m->text) return;
    memmove(m->text + at + length, m->text + at + count, m->length - at - count);
    memcpy(m->text + at, with, length);
    m->length += length - count;
}

/* Bytes from `at` to the end of its line. */
static size_t line_bytes(const Mutant *m, size_t at) {
    const char *end = memchr(m->text + at, '\n', m->length - at);
    return end ? (size_t)(end - m->text) - at : 0;
}

static void mutate(Mutant *m) {
    static const char *const TOKENS[] = {"%7",       "@vit.w",
                                         "$x",       "ir 1\n",
                                         "input ",   "param @",
                                         "output ",  " = ",
                                         "(",        ")",
                                         "[",        "]",
                                         "{",        "}",
                                         ",",        ":",
                                         "\"",       "\\",
                                         "\\u",      "#",
                                         "\n",       "N",
                                         "f32",      "-1",
                                         "0",        "1e999",
                                         "nan",      "-inf",
                                         "null",     "true",
                                         "at ",      "as q",
                                         "frozen",   "init ",
                                         "normal",   "size=",
                                         "label=",   "9999999999999999999",
                                         "\xff",     "\xc3",
                                         "[[[[[[[",  "bias=",
                                         ".",        "..9",
                                         "identity", "\r",
                                         "mask="};
    size_t at = draw(m, m->length + 1), rest = m->length - at;
    char copy[64], byte = (char)draw(m, 256);
    const char *token = TOKENS[draw(m, sizeof TOKENS / sizeof *TOKENS)];
    size_t count = draw(m, sizeof copy);
    size_t from = draw(m, m->length > count ? m->length - count : 1);
    switch (draw(m, 8)) {
    case 0: splice(m, at, rest > 0, &byte, 1); break;
    case 1: splice(m, at, 0, token, strlen(token)); break;
    case 2: splice(m, at, draw(m, (rest < 20 ? rest : 20) + 1), "", 0); break;
    case 3: splice(m, at, rest > 1 ? 2 : 0, token, strlen(token)); break;
    case 4: splice(m, at, rest > 0, &"aNz 019.-_/"[draw(m, 11)], 1); break;
    case 5: splice(m, at, line_bytes(m, at), "", 0); break;
    case 6: splice(m, at, 0, &"  \t#\n"[draw(m, 5)], 1); break;
    default:
        if (from + count > m->length) return;
        memcpy(copy, m->text + from, count);
        splice(m, at, 0, copy, count);
    }
}

/* Parses a copy of its exact size, so that reading beyond it is noticed. */
static char *reprint_exact(const char *text, size_t length, Diag *diag) {
    char *exact = malloc(length ? length : 1);
    memcpy(exact, text, length);
    char *printed = reprint(exact, length, diag);
    free(exact);
    return printed;
}

static void test_mutations(void **state) {
    (void)state;
    int parsed = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        Mutant m = {.key = random_key(20, i), .length = sizeof VALID - 1};
        memcpy(m.text, VALID, m.length);
        for (size_t n = 1 + draw(&m, 3); n > 0; n--) mutate(&m);
        Diag *diag = diag_create();
        char *once = reprint_exact(m.text, m.length, diag);
        assert_int_equal(once == NULL, diag_errors(diag) > 0);
        if (once) {
            char *twice = reprint_exact(once, strlen(once), diag);
            if (!twice) diag_print(diag, stderr);
            assert_non_null(twice);
            assert_string_equal(once, twice);
            free(twice);
            parsed++;
        }
        free(once);
        diag_destroy(diag);
    }
    assert_true(parsed > 300);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed_point), cmocka_unit_test(test_values),
        cmocka_unit_test(test_named),       cmocka_unit_test(test_names_taken),
        cmocka_unit_test(test_normalized),  cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_limits),      cmocka_unit_test(test_attrs_parse),
        cmocka_unit_test(test_mutations),   cmocka_unit_test(test_quantised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
