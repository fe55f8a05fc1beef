/* compress perplexity: how well a language model predicts a text, or last words. */
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "exec/ops.h"
#include "io/formats/load.h"
#include "session/perplexity.h"
#include "session/session.h"

/* What is measured, in the order in which it is told. */
static void put_text(Arena *arena, Tree *map, const Perplexity *it) {
    tree_put_int(arena, map, "bytes", it->bytes);
    tree_put_int(arena, map, "tokens", it->tokens);
    tree_put_real(arena, map, "bytes_per_token", (double)it->bytes / (double)it->tokens);
    tree_put_int(arena, map, "length", it->length);
    tree_put_int(arena, map, "stride", it->stride);
    tree_put_int(arena, map, "windows", it->samples);
    tree_put_int(arena, map, "predicted", it->predicted);
    tree_put_real(arena, map, "accuracy",
                  100 * (double)it->likeliest / (double)it->predicted);
    tree_put_real(arena, map, "loss", it->loss / (double)it->predicted);
    tree_put_real(arena, map, "perplexity", perplexity_of_tokens(it));
    tree_put_real(arena, map, "bits_per_byte", perplexity_bits_per_byte(it));
}

static void put_words(Arena *arena, Tree *map, const Perplexity *it) {
    tree_put_int(arena, map, "length", it->length);
    tree_put_int(arena, map, "texts", it->samples);
    tree_put_int(arena, map, "predicted", it->predicted);
    tree_put_real(arena, map, "accuracy", 100 * (double)it->exact / (double)it->samples);
    tree_put_real(arena, map, "perplexity", perplexity_of_words(it));
    tree_put_real(arena, map, "token_accuracy",
                  100 * (double)it->likeliest / (double)it->predicted);
    tree_put_real(arena, map, "token_perplexity", perplexity_of_tokens(it));
}

/* One value a row: whole numbers in groups of digits, others with four decimals. */
static void print_values(Arena *arena, const Tree *map) {
    TextTable table = table_create(arena, "lr");
    for (const Tree *value = map->first; value; value = value->next) {
        table_add(&table, "%s", value->key);
        if (value->kind == TREE_STRING)
            table_add(&table, "%s", value->string);
        else if (value->kind == TREE_INT)
            table_add(&table, "%s", text_grouped(arena, value->integer));
        else
            table_add(&table, "%.4f", value->real);
    }
    table_print(&table, 0, stdout);
}

static Status print_result(const Cli *cli, const Perplexity *it) {
    Text text = {0};
    Arena *arena = cli->arena;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    if (it->first >= 0) tree_put_int(arena, map, "first_token", it->first);
    if (cli->flags.last_word)
        put_words(arena, map, it);
    else
        put_text(arena, map, it);
    if (!cli->flags.json) {
        print_values(arena, map);
        return STATUS_OK;
    }
    tree_put_real(arena, map, "seconds", it->seconds);
    tree_print_json(&text, map, 2);
    puts(text.data);
    text_free(&text);
    return STATUS_OK;
}

Status command_perplexity(const Cli *cli, Diag *diag) {
    Model *model;
    Perplexity result;
    const Flags *flags = &cli->flags;
    Progress progress = progress_create(flags->quiet);
    Watch watch = progress_watch(&progress);
    const PerplexityOptions options = {.text = cli->args[1],
                                       .tokenizer = flags->tokenizer,
                                       .length = flags->length,
                                       .stride = flags->stride,
                                       .last_word = flags->last_word,
                                       .threads = threads_choose(flags->threads),
                                       .watch = &watch};
    TRY(model_load(&model, cli->args[0], ops_table(), true, diag));
    progress_begin(&progress, 0, 0, "perplexity");
    diag_on_warning(diag, progress_warn, &progress);
    Status status = perplexity_measure(&result, model, cli->args[0], &options, diag);
    progress_clear(&progress);
    diag_on_warning(diag, progress_warn, NULL);
    if (status == STATUS_OK) status = print_result(cli, &result);
    model_destroy(model);
    return status;
}
