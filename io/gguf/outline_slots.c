/* Tensors of GGUF files and the storages that they are in the graphs of our families;
 * names by llama.cpp (gguf-py/gguf/constants.py). */
#include "io/gguf/outline.h"

#include <string.h>

typedef struct SlotRow {
    const char *name;                /* "%d" stands for the layer */
    const char *storage[SLOT_PARTS]; /* below the family's prefix */
    TensorOrder order;
    bool plain;
} SlotRow;

static const SlotRow LLAMA[] = {
    {"token_embd.weight", {"model.embed_tokens.weight"}},
    {"blk.%d.attn_norm.weight", {"model.layers.%d.input_layernorm.weight"}},
    {"blk.%d.attn_q.weight", {"model.layers.%d.self_attn.q_proj.weight"}, ORDER_PAIRS},
    {"blk.%d.attn_q.bias", {"model.layers.%d.self_attn.q_proj.bias"}, ORDER_PAIRS},
    {"blk.%d.attn_k.weight", {"model.layers.%d.self_attn.k_proj.weight"}, ORDER_PAIRS},
    {"blk.%d.attn_k.bias", {"model.layers.%d.self_attn.k_proj.bias"}, ORDER_PAIRS},
    {"blk.%d.attn_v.weight", {"model.layers.%d.self_attn.v_proj.weight"}},
    {"blk.%d.attn_v.bias", {"model.layers.%d.self_attn.v_proj.bias"}},
    {"blk.%d.attn_output.weight", {"model.layers.%d.self_attn.o_proj.weight"}},
    {"blk.%d.attn_output.bias", {"model.layers.%d.self_attn.o_proj.bias"}},
    {"blk.%d.ffn_norm.weight", {"model.layers.%d.post_attention_layernorm.weight"}},
    {"blk.%d.ffn_gate.weight", {"model.layers.%d.mlp.gate_proj.weight"}},
    {"blk.%d.ffn_gate.bias", {"model.layers.%d.mlp.gate_proj.bias"}},
    {"blk.%d.ffn_up.weight", {"model.layers.%d.mlp.up_proj.weight"}},
    {"blk.%d.ffn_up.bias", {"model.layers.%d.mlp.up_proj.bias"}},
    {"blk.%d.ffn_down.weight", {"model.layers.%d.mlp.down_proj.weight"}},
    {"blk.%d.ffn_down.bias", {"model.layers.%d.mlp.down_proj.bias"}},
    {"output_norm.weight", {"model.norm.weight"}},
    {"output.weight", {"lm_head.weight"}},
    {NULL}};

#define L "model.layers.%d."
/* Turned by halves in llama.cpp as well, so rows stay as they are. */
static const SlotRow QWEN[] = {
    {"token_embd.weight", {"model.embed_tokens.weight"}},
    {"blk.%d.attn_norm.weight", {L "input_layernorm.weight"}},
    {"blk.%d.attn_q.weight", {L "self_attn.q_proj.weight"}},
    {"blk.%d.attn_q.bias", {L "self_attn.q_proj.bias"}},
    {"blk.%d.attn_q_norm.weight", {L "self_attn.q_norm.weight"}},
    {"blk.%d.attn_k.weight", {L "self_attn.k_proj.weight"}},
    {"blk.%d.attn_k.bias", {L "self_attn.k_proj.bias"}},
    {"blk.%d.attn_k_norm.weight", {L "self_attn.k_norm.weight"}},
    {"blk.%d.attn_v.weight", {L "self_attn.v_proj.weight"}},
    {"blk.%d.attn_v.bias", {L "self_attn.v_proj.bias"}},
    {"blk.%d.attn_output.weight", {L "self_attn.o_proj.weight"}},
    {"blk.%d.ffn_norm.weight", {L "post_attention_layernorm.weight"}},
    {"blk.%d.ffn_gate.weight", {L "mlp.gate_proj.weight"}},
    {"blk.%d.ffn_up.weight", {L "mlp.up_proj.weight"}},
    {"blk.%d.ffn_down.weight", {L "mlp.down_proj.weight"}},
    {"output_norm.weight", {"model.norm.weight"}},
    {"output.weight", {"lm_head.weight"}},
    {NULL}};
#undef L

#define H "transformer.h.%d."
static const SlotRow GPT2[] = {
    {"token_embd.weight", {"transformer.wte.weight"}},
    {"position_embd.weight", {"transformer.wpe.weight"}, .plain = true},
    {"blk.%d.attn_norm.weight", {H "ln_1.weight"}},
    {"blk.%d.attn_norm.bias", {H "ln_1.bias"}},
    {"blk.%d.attn_qkv.weight",
     {H "attn.q.weight", H "attn.k.weight", H "attn.v.weight"},
     ORDER_TRANSPOSED},
    {"blk.%d.attn_qkv.bias", {H "attn.q.bias", H "attn.k.bias", H "attn.v.bias"}},
    {"blk.%d.attn_output.weight", {H "attn.c_proj.weight"}, ORDER_TRANSPOSED},
    {"blk.%d.attn_output.bias", {H "attn.c_proj.bias"}},
    {"blk.%d.ffn_norm.weight", {H "ln_2.weight"}},
    {"blk.%d.ffn_norm.bias", {H "ln_2.bias"}},
    {"blk.%d.ffn_up.weight", {H "mlp.c_fc.weight"}, ORDER_TRANSPOSED},
    {"blk.%d.ffn_up.bias", {H "mlp.c_fc.bias"}},
    {"blk.%d.ffn_down.weight", {H "mlp.c_proj.weight"}, ORDER_TRANSPOSED},
    {"blk.%d.ffn_down.bias", {H "mlp.c_proj.bias"}},
    {"output_norm.weight", {"transformer.ln_f.weight"}},
    {"output_norm.bias", {"transformer.ln_f.bias"}},
    {"output.weight", {"lm_head.weight"}},
    {NULL}};
#undef H

#define L "bert.encoder.layer.%d."
#define E "bert.embeddings."
static const SlotRow BERT[] = {
    {"token_embd.weight", {E "word_embeddings.weight"}},
    {"token_types.weight", {E "token_type_embeddings.weight"}, .plain = true},
    {"position_embd.weight", {E "position_embeddings.weight"}, .plain = true},
    {"token_embd_norm.weight", {E "LayerNorm.weight"}},
    {"token_embd_norm.bias", {E "LayerNorm.bias"}},
    {"blk.%d.attn_q.weight", {L "attention.self.query.weight"}},
    {"blk.%d.attn_q.bias", {L "attention.self.query.bias"}},
    {"blk.%d.attn_k.weight", {L "attention.self.key.weight"}},
    {"blk.%d.attn_k.bias", {L "attention.self.key.bias"}},
    {"blk.%d.attn_v.weight", {L "attention.self.value.weight"}},
    {"blk.%d.attn_v.bias", {L "attention.self.value.bias"}},
    {"blk.%d.attn_output.weight", {L "attention.output.dense.weight"}},
    {"blk.%d.attn_output.bias", {L "attention.output.dense.bias"}},
    {"blk.%d.attn_output_norm.weight", {L "attention.output.LayerNorm.weight"}},
    {"blk.%d.attn_output_norm.bias", {L "attention.output.LayerNorm.bias"}},
    {"blk.%d.ffn_up.weight", {L "intermediate.dense.weight"}},
    {"blk.%d.ffn_up.bias", {L "intermediate.dense.bias"}},
    {"blk.%d.ffn_down.weight", {L "output.dense.weight"}},
    {"blk.%d.ffn_down.bias", {L "output.dense.bias"}},
    {"blk.%d.layer_output_norm.weight", {L "output.LayerNorm.weight"}},
    {"blk.%d.layer_output_norm.bias", {L "output.LayerNorm.bias"}},
    {"cls.weight", {"bert.pooler.dense.weight"}},
    {"cls.bias", {"bert.pooler.dense.bias"}},
    {"cls.output.weight", {"classifier.weight"}},
    {"cls.output.bias", {"classifier.bias"}},
    {NULL}};
#undef L
#undef E

static const SlotRow *const ROWS[] = {[OUTLINE_LLAMA] = LLAMA,
                                      [OUTLINE_GPT2] = GPT2,
                                      [OUTLINE_BERT] = BERT,
                                      [OUTLINE_QWEN2] = QWEN,
                                      [OUTLINE_QWEN3] = QWEN};

/* "%d" in place of the layer. */
static const char *put_layer(Arena *arena, const char *name, int layer) {
    const char *at = strstr(name, "%d");
    if (!at) return name;
    return arena_printf(arena, "%.*s%d%s", (int)(at - name), name, layer, at + 2);
}

/* Adds the tensor of a row where the graph has the storages of it. */
static void add_slot(TensorSlot *slots, int *count, Arena *arena, const Outline *outline,
                     const Graph *graph, const SlotRow *row, int layer) {
    TensorSlot slot = {.name = put_layer(arena, row->name, layer),
                       .order = row->order,
                       .plain = row->plain};
    while (slot.parts < SLOT_PARTS && row->storage[slot.parts]) {
        const char *name = put_layer(arena, row->storage[slot.parts], layer);
        const char *dot = strchr(name, '.');
        const Storage *storage = graph_storage(graph, name);
        /* checkpoints of a trunk alone have names without the prefix */
        if (!storage && dot) storage = graph_storage(graph, dot + 1);
        if (!storage) return;
        slot.type = (Type){.rank = storage->tensor.rank};
        memcpy(slot.type.dim, storage->tensor.dim, sizeof slot.type.dim);
        slot.storage[slot.parts++] = storage->name;
    }
    if (row->order == ORDER_PAIRS) slot.heads = slot.type.dim[0] / outline->head_width;
    slots[(*count)++] = slot;
}

void outline_slots(TensorSlot **out, int *count, Arena *arena, const Outline *outline,
                   const Graph *whole) {
    const SlotRow *row = ROWS[outline->kind];
    int most = 0;
    while (row[most].name) most++;
    *out = ARENA_ARRAY(arena, TensorSlot, (size_t)most * (size_t)(outline->layers + 1));
    *count = 0;
    while (row->name) {
        const SlotRow *end = row; /* of the rows of a layer, which follow each other */
        while (end->name && strstr(end->name, "%d")) end++;
        for (int layer = 0; layer < outline->layers; layer++)
            for (const SlotRow *each = row; each < end; each++)
                add_slot(*out, count, arena, outline, whole, each, layer);
        if (row == end) add_slot(*out, count, arena, outline, whole, row, 0);
        row = row == end ? row + 1 : end;
    }
}
