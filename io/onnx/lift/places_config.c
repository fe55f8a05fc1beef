/* Configurations of lifted graphs: see places_config.h. */
#include "io/onnx/lift/places_config.h"

#include <string.h>

/* What configurations are made of. */
typedef struct Facts {
    const Graph *graph;
    const char *stack;
    int64_t layers, heads, kv_heads, head_width, hidden, width, vocabulary, labels;
    const Node *embed, *position, *attention, *norm, *act;
} Facts;

static bool is(const Node *node, const char *op) {
    return node && strcmp(node->op->name, op) == 0;
}

static const Node *find_op(const Graph *graph, const char *op) {
    for (const Node *node = graph->first; node; node = node->next)
        if (is(node, op)) return node;
    return NULL;
}

static Facts find_facts(const Graph *graph) {
    Facts f = {.graph = graph, .stack = graph_main_stack(graph)};
    f.layers = graph_layer_count(graph, f.stack);
    f.attention = graph_find(graph, f.stack, -1, ROLE_ATTENTION);
    f.embed = graph_find(graph, STACK_EMBEDDINGS, -1, ROLE_EMBED);
    f.position = graph_find(graph, STACK_EMBEDDINGS, -1, ROLE_POSITION);
    f.act = graph_find(graph, f.stack, -1, ROLE_FFN_ACT);
    f.norm = graph_find(graph, f.stack, -1, ROLE_NORM1);
    if (!f.norm) f.norm = graph_find(graph, f.stack, -1, ROLE_NORM2);
    f.width = node_width(graph_find(graph, f.stack, -1, ROLE_RESIDUAL2));
    if (f.width == 0)
        f.width = node_width(graph_find(graph, f.stack, -1, ROLE_RESIDUAL1));
    f.hidden = node_width(graph_find(graph, f.stack, -1, ROLE_FFN_IN));
    f.vocabulary = is(f.embed, "embedding") ? f.embed->in[1]->type.dim[0] : 0;
    f.labels = node_width(graph_output(graph, OUTPUT_LOGITS));
    if (f.attention) {
        f.heads = node_heads(f.attention);
        f.kv_heads = node_key_heads(f.attention);
        f.head_width = node_head_width(f.attention);
    }
    return f;
}

/* An activation in transformers' terms. */
static const char *act_name(const Node *act, const char *tanh_form) {
    static const char *const SAME[] = {"gelu", "relu", "silu", "tanh", "sigmoid"};
    if (is(act, "multiply")) act = act->in[is(act->in[1], "activation")];
    if (!act || node_chooses(act, "fn", "gelu_tanh")) return tanh_form;
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++)
        if (node_chooses(act, "fn", SAME[i])) return SAME[i];
    return "gelu";
}

/* ---- families ---- */

static void put_labels(Arena *arena, Tree *config, const Facts *f) {
    if (f->labels > 0) tree_put_int(arena, config, "num_labels", f->labels);
}

static void put_class(Arena *arena, Tree *config, const char *stem, const Facts *f,
                      const char *bare) {
    static const char *const CLASSES[TASK_COUNT] = {
        [TASK_CLASSIFY] = "ForSequenceClassification",
        [TASK_LABEL_TOKENS] = "ForTokenClassification",
        [TASK_FILL_IN] = "ForMaskedLM"};
    const char *end = CLASSES[f->graph->task];
    Tree *list = tree_put_list(arena, config, "architectures");
    tree_add_string(arena, list, arena_printf(arena, "%s%s", stem, end ? end : bare));
    if (f->graph->task == TASK_CLASSIFY || f->graph->task == TASK_LABEL_TOKENS)
        put_labels(arena, config, f);
}

static void put_bert(Arena *arena, Tree *config, const Facts *f) {
    const Node *types = graph_find(f->graph, STACK_EMBEDDINGS, -1, ROLE_TOKEN_TYPE);
    const bool counted = is(f->position, "add_position") && node_has(f->position, 2);
    const bool distil = !types && !counted;
    const bool table = types && is(types->in[1], "embedding");
    const char *type = distil ? "distilbert" : counted ? "roberta" : "bert";
    tree_put_string(arena, config, "model_type", type);
    put_class(arena, config,
              distil    ? "DistilBert"
              : counted ? "Roberta"
                        : "Bert",
              f, "Model");
    if (counted)
        tree_put_int(arena, config, "pad_token_id",
                     node_integer(f->position, "offset") - 1);
    tree_put_int(arena, config, distil ? "dim" : "hidden_size", f->width);
    tree_put_int(arena, config, distil ? "n_layers" : "num_hidden_layers", f->layers);
    tree_put_int(arena, config, distil ? "n_heads" : "num_attention_heads", f->heads);
    tree_put_int(arena, config, distil ? "hidden_dim" : "intermediate_size", f->hidden);
    tree_put_string(arena, config, distil ? "activation" : "hidden_act",
                    act_name(f->act, "gelu_new"));
    if (is(f->position, "add_position"))
        tree_put_int(arena, config, "max_position_embeddings",
                     f->position->in[1]->type.dim[0]);
    tree_put_int(arena, config, "vocab_size", f->vocabulary);
    if (!distil)
        tree_put_int(arena, config, "type_vocab_size",
                     table ? types->in[1]->in[1]->type.dim[0] : 1);
    if (!distil && f->norm)
        tree_put_real(arena, config, "layer_norm_eps", node_real(f->norm, "eps"));
}

/* Which layers see near tokens alone, and the angles of both kinds. */
static void put_near_layers(Arena *arena, Tree *config, const Facts *f) {
    Tree *types = tree_put_list(arena, config, "layer_types");
    for (int i = 0; i < f->layers; i++) {
        const Node *attention = graph_find(f->graph, f->stack, i, ROLE_ATTENTION),
                   *turn = graph_find(f->graph, f->stack, i, ROLE_ROTARY_Q);
        const int64_t reach = attention ? node_integer(attention, "reach") : 0;
        tree_add_string(arena, types, reach ? "sliding_attention" : "full_attention");
        if (reach) tree_put_int(arena, config, "local_attention", 2 * (reach - 1));
        if (turn)
            tree_put_real(arena, config, reach ? "local_rope_theta" : "global_rope_theta",
                          node_real(turn, "theta"));
    }
}

/* The dense layer, activation and norm before a decoder or a classifier. */
static void put_dense_head(Arena *arena, Tree *config, const Facts *f) {
    const Node *last = graph_find(f->graph, STACK_HEAD, -1, ROLE_HEAD),
               *pool = graph_find(f->graph, STACK_HEAD, -1, ROLE_POOL);
    const Node *norm = is(last, "linear") ? last->in[0] : NULL;
    const Node *act = is(norm, "layer_norm") ? norm->in[0] : NULL;
    const Node *dense = is(act, "activation") ? act->in[0] : NULL;
    if (act)
        tree_put_string(arena, config, "classifier_activation",
                        act_name(act, "gelu_pytorch_tanh"));
    if (is(dense, "linear"))
        tree_put_bool(arena, config, "classifier_bias", node_has(dense, 2));
    if (pool)
        tree_put_string(arena, config, "classifier_pooling",
                        is(pool, "mean_tokens") ? "mean" : "cls");
    if (!is(last, "linear") || f->graph->task != TASK_FILL_IN) return;
    tree_put_bool(arena, config, "decoder_bias", node_has(last, 2));
    tree_put_bool(arena, config, "tie_word_embeddings", last->in[1] == f->embed->in[1]);
}

static void put_modernbert(Arena *arena, Tree *config, const Facts *f) {
    const Node *q = graph_find(f->graph, f->stack, -1, ROLE_Q),
               *in = graph_find(f->graph, f->stack, -1, ROLE_FFN_IN);
    tree_put_string(arena, config, "model_type", "modernbert");
    put_class(arena, config, "ModernBert", f, "Model");
    tree_put_int(arena, config, "hidden_size", f->width);
    tree_put_int(arena, config, "num_hidden_layers", f->layers);
    tree_put_int(arena, config, "num_attention_heads", f->heads);
    tree_put_int(arena, config, "intermediate_size", f->hidden);
    tree_put_int(arena, config, "vocab_size", f->vocabulary);
    tree_put_string(arena, config, "hidden_activation",
                    act_name(f->act, "gelu_pytorch_tanh"));
    if (f->norm) {
        tree_put_real(arena, config, "norm_eps", node_real(f->norm, "eps"));
        tree_put_bool(arena, config, "norm_bias", node_has(f->norm, 2));
    }
    if (q) tree_put_bool(arena, config, "attention_bias", node_has(q, 2));
    if (in) tree_put_bool(arena, config, "mlp_bias", node_has(in, 2));
    put_near_layers(arena, config, f);
    put_dense_head(arena, config, f);
}

static void put_gpt2(Arena *arena, Tree *config, const Facts *f) {
    const bool head = graph_output(f->graph, OUTPUT_LOGITS) != NULL;
    tree_put_string(arena, config, "model_type", "gpt2");
    Tree *list = tree_put_list(arena, config, "architectures");
    tree_add_string(arena, list, head ? "GPT2LMHeadModel" : "GPT2Model");
    tree_put_int(arena, config, "n_embd", f->width);
    tree_put_int(arena, config, "n_layer", f->layers);
    tree_put_int(arena, config, "n_head", f->heads);
    tree_put_int(arena, config, "n_inner", f->hidden);
    tree_put_int(arena, config, "n_positions", f->position->in[1]->type.dim[0]);
    tree_put_int(arena, config, "vocab_size", f->vocabulary);
    tree_put_string(arena, config, "activation_function", act_name(f->act, "gelu_new"));
    if (f->norm)
        tree_put_real(arena, config, "layer_norm_epsilon", node_real(f->norm, "eps"));
}

/* The reach that the attention of all layers has; 0 = none, or several. */
static int64_t find_reach_of_all(const Facts *f) {
    int64_t reach = f->attention ? node_integer(f->attention, "reach") : 0;
    for (int i = 0; i < f->layers; i++) {
        const Node *node = graph_find(f->graph, f->stack, i, ROLE_ATTENTION);
        if (node && node_integer(node, "reach") != reach) reach = 0;
    }
    return reach;
}

/* How angles are stretched over longer texts. */
static void put_scaling(Arena *arena, Tree *config, const Node *rotary) {
    const bool llama3 = node_chooses(rotary, "scaling", "llama3");
    if (!llama3 && !node_chooses(rotary, "scaling", "linear")) return;
    Tree *scaling = tree_put_map(arena, config, "rope_scaling");
    tree_put_string(arena, scaling, "rope_type", llama3 ? "llama3" : "linear");
    tree_put_real(arena, scaling, "factor", node_real(rotary, "factor"));
    if (!llama3) return;
    tree_put_real(arena, scaling, "low_freq_factor", node_real(rotary, "slow"));
    tree_put_real(arena, scaling, "high_freq_factor", node_real(rotary, "fast"));
    tree_put_int(arena, scaling, "original_max_position_embeddings",
                 (int64_t)node_real(rotary, "original"));
}

/* Llama, or the relative that differs from it in what is there. */
static void put_llama(Arena *arena, Tree *config, const Facts *f) {
    const bool head = graph_output(f->graph, OUTPUT_LOGITS) != NULL;
    const Node *rotary = find_op(f->graph, "rotary");
    const Node *q = graph_find(f->graph, f->stack, -1, ROLE_Q),
               *in = graph_find(f->graph, f->stack, -1, ROLE_FFN_IN);
    const Node *out = graph_find(f->graph, f->stack, -1, ROLE_OUT);
    const int64_t reach = find_reach_of_all(f);
    const bool normed = graph_find(f->graph, f->stack, -1, ROLE_NORM_Q) != NULL;
    const bool qwen2 = q && out && node_has(q, 2) && !node_has(out, 2) && !normed;
    const bool qwen = qwen2 || normed;
    const char *stem = normed      ? "Qwen3"
                       : qwen      ? "Qwen2"
                       : reach > 0 ? "Mistral"
                                   : "Llama";
    tree_put_string(arena, config, "model_type",
                    normed      ? "qwen3"
                    : qwen      ? "qwen2"
                    : reach > 0 ? "mistral"
                                : "llama");
    Tree *list = tree_put_list(arena, config, "architectures");
    tree_add_string(arena, list,
                    arena_printf(arena, "%s%s", stem, head ? "ForCausalLM" : "Model"));
    if (reach > 0) tree_put_int(arena, config, "sliding_window", reach);
    if (qwen && reach > 0) {
        tree_put_bool(arena, config, "use_sliding_window", true);
        tree_put_int(arena, config, "max_window_layers", 0);
    }
    tree_put_int(arena, config, "hidden_size", f->width);
    tree_put_int(arena, config, "num_hidden_layers", f->layers);
    tree_put_int(arena, config, "num_attention_heads", f->heads);
    tree_put_int(arena, config, "num_key_value_heads", f->kv_heads);
    tree_put_int(arena, config, "head_dim", f->head_width);
    tree_put_int(arena, config, "intermediate_size", f->hidden);
    tree_put_int(arena, config, "vocab_size", f->vocabulary);
    tree_put_string(arena, config, "hidden_act", act_name(f->act, "gelu_pytorch_tanh"));
    if (f->norm) tree_put_real(arena, config, "rms_norm_eps", node_real(f->norm, "eps"));
    if (rotary) tree_put_real(arena, config, "rope_theta", node_real(rotary, "theta"));
    if (rotary) put_scaling(arena, config, rotary);
    if (q && !qwen2) tree_put_bool(arena, config, "attention_bias", node_has(q, 2));
    if (in && !normed) tree_put_bool(arena, config, "mlp_bias", node_has(in, 2));
    const Node *last = graph_find(f->graph, STACK_HEAD, -1, ROLE_HEAD);
    tree_put_bool(arena, config, "tie_word_embeddings",
                  is(last, "linear") && is(f->embed, "embedding") &&
                      last->in[1] == f->embed->in[1]);
}

/* Pixels and patches of an image model. */
static void put_image(Arena *arena, Tree *config, const Node *patches) {
    const int64_t *dim = patches->in[0]->type.dim;
    if (dim[2] == dim[3]) {
        tree_put_int(arena, config, "image_size", dim[2]);
    } else {
        Tree *list = tree_put_list(arena, config, "image_size");
        for (int i = 2; i < 4; i++) {
            Tree *size = tree_new(arena, TREE_INT, LOC_NONE);
            size->integer = dim[i];
            tree_append(arena, list, NULL, LOC_NONE, size);
        }
    }
    tree_put_int(arena, config, "patch_size", node_integer(patches, "size"));
    tree_put_int(arena, config, "num_channels", dim[1]);
}

static int count_role(const Graph *graph, Role role) {
    int count = 0;
    for (const Node *node = graph->first; node; node = node->next)
        count += node->role == role;
    return count;
}

static void put_vit(Arena *arena, Tree *config, const Facts *f, const Node *patches) {
    const bool deit = count_role(f->graph, ROLE_TOKEN) == 2;
    const bool teacher = count_role(f->graph, ROLE_DIST_HEAD) > 0;
    const char *stem = deit ? "DeiT" : "ViT";
    const char *end = teacher         ? "ForImageClassificationWithTeacher"
                      : f->labels > 0 ? "ForImageClassification"
                                      : "Model";
    const Node *q = graph_find(f->graph, f->stack, -1, ROLE_Q);
    tree_put_string(arena, config, "model_type", deit ? "deit" : "vit");
    Tree *list = tree_put_list(arena, config, "architectures");
    tree_add_string(arena, list, arena_printf(arena, "%s%s", stem, end));
    tree_put_int(arena, config, "hidden_size", f->width);
    tree_put_int(arena, config, "num_hidden_layers", f->layers);
    tree_put_int(arena, config, "num_attention_heads", f->heads);
    tree_put_int(arena, config, "intermediate_size", f->hidden);
    put_image(arena, config, patches);
    tree_put_string(arena, config, "hidden_act", act_name(f->act, "gelu_pytorch_tanh"));
    if (f->norm)
        tree_put_real(arena, config, "layer_norm_eps", node_real(f->norm, "eps"));
    if (q) tree_put_bool(arena, config, "qkv_bias", node_has(q, 2));
    put_labels(arena, config, f);
}

static void put_swin(Arena *arena, Tree *config, const Facts *f, const Node *patches) {
    Tree *list = tree_put_list(arena, config, "architectures");
    const Node *in = graph_find(f->graph, f->stack, -1, ROLE_FFN_IN);
    const Node *first = graph_find(f->graph, STACK_EMBEDDINGS, -1, ROLE_EMBED);
    tree_put_string(arena, config, "model_type", "swin");
    tree_add_string(arena, list,
                    f->labels > 0 ? "SwinForImageClassification" : "SwinModel");
    tree_put_int(arena, config, "embed_dim", node_width(first));
    Tree *depths = tree_put_list(arena, config, "depths"),
         *heads = tree_put_list(arena, config, "num_heads");
    const int stages = graph_layer_stage(f->graph, f->stack, (int)f->layers) + 1;
    for (int stage = 0; stage < stages; stage++) {
        int64_t depth = 0, wide = 1;
        for (int i = 0; i < f->layers; i++) {
            if (graph_layer_stage(f->graph, f->stack, i) != stage) continue;
            const Node *attention = graph_find(f->graph, f->stack, i, ROLE_ATTENTION);
            if (attention) wide = node_integer(attention, "heads");
            depth++;
        }
        tree_add_int(arena, depths, depth);
        tree_add_int(arena, heads, wide);
    }
    put_image(arena, config, patches);
    tree_put_int(arena, config, "window_size",
                 f->attention ? node_integer(f->attention, "window") : 7);
    if (in && node_width(in->in[0]) > 0)
        tree_put_real(arena, config, "mlp_ratio",
                      (double)node_width(in) / (double)node_width(in->in[0]));
    tree_put_string(arena, config, "hidden_act", act_name(f->act, "gelu_pytorch_tanh"));
    if (f->norm)
        tree_put_real(arena, config, "layer_norm_eps", node_real(f->norm, "eps"));
    put_labels(arena, config, f);
}

/* Layers, heads and units of one side of an encoder-decoder. */
static void put_side(Arena *arena, Tree *config, const Graph *graph, const char *side) {
    const Node *attention = graph_find(graph, side, -1, ROLE_ATTENTION);
    tree_put_int(arena, config, arena_printf(arena, "%s_layers", side),
                 graph_layer_count(graph, side));
    tree_put_int(arena, config, arena_printf(arena, "%s_attention_heads", side),
                 attention ? node_heads(attention) : 1);
    tree_put_int(arena, config, arena_printf(arena, "%s_ffn_dim", side),
                 node_width(graph_find(graph, side, -1, ROLE_FFN_IN)));
}

/* Where the norms of a stack's blocks stand. */
static const char *norm_place(const Graph *graph, const char *stack) {
    const Node *sum = graph_find(graph, stack, -1, ROLE_RESIDUAL1),
               *norm = graph_find(graph, stack, -1, ROLE_NORM1);
    if (!sum || !norm || norm->in[0] == sum) return "post";
    return sum->in[0] == norm->in[0] ? "pre" : "branch";
}

static void put_marian(Arena *arena, Tree *config, const Facts *f) {
    const Graph *graph = f->graph;
    const bool head = graph_output(graph, OUTPUT_LOGITS) != NULL;
    const Node *target = graph_find(graph, STACK_DECODER_EMBEDDINGS, -1, ROLE_EMBED);
    const Node *last = graph_find(graph, STACK_HEAD, -1, ROLE_HEAD);
    const bool table = is(target, "embedding") && is(f->embed, "embedding");
    tree_put_string(arena, config, "model_type", "marian");
    Tree *list = tree_put_list(arena, config, "architectures");
    tree_add_string(arena, list, head ? "MarianMTModel" : "MarianModel");
    tree_put_bool(arena, config, "is_encoder_decoder", true);
    tree_put_int(arena, config, "d_model", f->width);
    put_side(arena, config, graph, STACK_ENCODER);
    put_side(arena, config, graph, STACK_DECODER);
    tree_put_int(arena, config, "vocab_size", f->vocabulary);
    if (table) {
        tree_put_int(arena, config, "decoder_vocab_size", target->in[1]->type.dim[0]);
        tree_put_bool(arena, config, "share_encoder_decoder_embeddings",
                      target->in[1] == f->embed->in[1]);
        tree_put_bool(arena, config, "tie_word_embeddings",
                      is(last, "linear") && last->in[1] == target->in[1]);
    }
    tree_put_string(arena, config, "activation_function", act_name(f->act, "gelu_new"));
    tree_put_string(arena, config, "norm", norm_place(graph, STACK_DECODER));
    tree_put_bool(arena, config, "add_final_layer_norm",
                  graph_find(graph, STACK_DECODER, -1, ROLE_FINAL_NORM) != NULL);
    tree_put_bool(arena, config, "normalize_embedding",
                  graph_find(graph, STACK_DECODER_EMBEDDINGS, -1, ROLE_NORM0) != NULL);
    tree_put_bool(arena, config, "scale_embedding", is(f->position->in[0], "scale"));
    if (f->norm)
        tree_put_real(arena, config, "layer_norm_eps", node_real(f->norm, "eps"));
}

Tree *places_config(Arena *arena, const Graph *graph) {
    Tree *config = tree_new(arena, TREE_MAP, LOC_NONE);
    const Facts f = find_facts(graph);
    const Node *patches = find_op(graph, "patches");
    const bool decoder = strcmp(f.stack, STACK_DECODER) == 0;
    if (graph_find_input(graph, INPUT_TARGET_IDS)) {
        if (is(f.position, "add_sinusoid")) put_marian(arena, config, &f);
    } else if (patches && find_op(graph, "window_partition"))
        put_swin(arena, config, &f, patches);
    else if (patches)
        put_vit(arena, config, &f, patches);
    else if (decoder && find_op(graph, "rotary"))
        put_llama(arena, config, &f);
    else if (decoder && is(f.position, "add_position"))
        put_gpt2(arena, config, &f);
    else if (!decoder && f.layers > 0 && is(f.embed, "embedding") &&
             find_op(graph, "rotary"))
        put_modernbert(arena, config, &f);
    else if (!decoder && f.layers > 0 && is(f.embed, "embedding"))
        put_bert(arena, config, &f);
    return config;
}
