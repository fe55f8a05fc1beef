/* compress generate of a model that translates: one sentence, or the lines of a file,
 * some of them side by side. */
#include "cli/generate.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "exec/run/ticker.h"
#include "io/files/outfile.h"
#include "session/session.h"
#include "session/text_translator.h"

#include <string.h>

typedef struct Translating {
    const Cli *cli;
    const Model *model;
    TextTranslator *translator;
    Line *texts;
    int64_t count, done;
    int64_t line, lines; /* of the file of prompts: behind, and there are; 0 = no file */
    OutFile *file;       /* NULL = standard output */
    bool alone;          /* the translation of --prompt, without JSON */
    bool plain;          /* a line each, without JSON */
    Progress progress;
    int64_t read, made; /* tokens */
    double score;       /* of the last one */
} Translating;

static Status check_flags(const Flags *flags, Diag *diag) {
    if (flags->temperature > 0 || flags->top_k > 0 || flags->top_p > 0 ||
        flags->min_p > 0 || flags->repetition_penalty > 0 || flags->seed > 0)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected --beam for a model that translates, which does not "
                         "sample");
    if (flags->count > 0 || flags->stop.count > 0 || flags->logprobs)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "--count, --stop and --logprobs are for language models, this "
                         "one translates");
    if (flags->prompt && flags->prompts)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected one of --prompt and --prompts, found both");
    if ((flags->prompt && *flags->prompt) || flags->prompts) return STATUS_OK;
    return diag_fail(
        diag, STATUS_USAGE, LOC_NONE, NULL,
        "expected --prompt TEXT, a sentence to translate, or --prompts FILE");
}

static Status open_translations(Translating *t, Diag *diag) {
    const Flags *flags = &t->cli->flags;
    const char *output;
    const TextTranslatorOptions options = {
        .source = flags->tokenizer,
        .target = flags->target_tokenizer,
        .max_tokens = flags->max_tokens ? flags->max_tokens : TRANSLATION_TOKENS,
        .beam = flags->beam ? flags->beam : TRANSLATION_BEAM,
        .length_penalty = flags->length_penalty < 0 ? 1 : flags->length_penalty,
        .threads = threads_choose(flags->threads),
        .weights = flags->bf16 ? STEP_BF16 : STEP_F32};
    TRY(check_flags(flags, diag));
    t->alone = flags->prompt && !flags->output;
    TRY(generate_output(&output, &t->plain, t->cli, diag));
    TRY(generate_prompts(&t->texts, &t->count, &t->lines, t->cli, diag));
    TRY(text_translator_open(&t->translator, t->model, t->cli->args[0], &options, diag));
    return output ? outfile_open(&t->file, NULL, output, diag) : STATUS_OK;
}

/* What is written of a text. */
static void print_line(const Translating *t, Text *line, int64_t number,
                       const TranslatedText *made, Arena *arena) {
    const TextSpan prompt = t->texts[number].text;
    if (t->alone || t->plain) {
        text_add(line, "%s\n", made->text);
        return;
    }
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_int(arena, map, "index", number);
    if (t->lines > 0) tree_put_int(arena, map, "line", t->texts[number].at.line);
    tree_put_string(arena, map, "prompt",
                    arena_strndup(arena, prompt.text, prompt.length));
    translated_text_tell(map, made, arena);
    tree_print_json(line, map, 0);
    text_add(line, "\n");
}

/* An empty line for each that is blank in the file of prompts, up to line number `end`:
 * lines without JSON stand where their sentences do. */
static void print_blank(Translating *t, Text *lines, int64_t end) {
    for (; t->plain && t->line < end; t->line++) text_add(lines, "\n");
}

/* The next texts, side by side. */
static Status translate_some(Translating *t, int64_t count, Arena *arena, Diag *diag) {
    Text lines = {0};
    Status status = STATUS_OK;
    TranslatedText *made = ARENA_ARRAY(arena, TranslatedText, (size_t)count);
    TRY(text_translator_run(t->translator, made, t->texts + t->done, count, arena, diag));
    for (int64_t i = 0; i < count; i++) {
        print_blank(t, &lines, t->texts[t->done + i].at.line - 1);
        print_line(t, &lines, t->done + i, &made[i], arena);
        t->line++;
        t->read += made[i].read;
        t->made += made[i].made;
        t->score = made[i].score;
    }
    if (t->done + count == t->count) print_blank(t, &lines, t->lines);
    if (t->file)
        status = outfile_write(t->file, lines.data, lines.length, diag);
    else
        fwrite(lines.data, 1, lines.length, stdout);
    text_free(&lines);
    t->done += count;
    return status;
}

static Status translate_all(Translating *t, Diag *diag) {
    const int64_t together =
        t->cli->flags.batch ? t->cli->flags.batch : TRANSLATIONS_TOGETHER;
    Status status = STATUS_OK;
    while (t->done < t->count && status == STATUS_OK) {
        if (signals_interrupted(NULL))
            return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL,
                             "stopped after %lld of %lld texts", (long long)t->done,
                             (long long)t->count);
        const int64_t left = t->count - t->done;
        Arena *arena = arena_create();
        status = translate_some(t, left < together ? left : together, arena, diag);
        arena_destroy(arena);
        progress_update(&t->progress, t->done, t->count, "");
    }
    return status;
}

static void tell_timing(const Translating *t, double seconds) {
    fprintf(stderr, "%lld tokens read, %lld made in %.1f ms; ", (long long)t->read,
            (long long)t->made, 1e3 * seconds);
    if (t->count == 1) fprintf(stderr, "score %.4f; ", t->score);
    fprintf(stderr, "threads %d\n", text_translator_threads(t->translator, t->count));
}

static Status run_translations(Translating *t, Diag *diag) {
    TRY(open_translations(t, diag));
    const double start = ticker_seconds();
    t->progress = progress_create(t->cli->flags.quiet);
    if (!t->alone) progress_begin(&t->progress, 0, 0, "translate");
    const Status status = translate_all(t, diag);
    progress_clear(&t->progress);
    TRY(status);
    if (t->cli->flags.timing) tell_timing(t, ticker_seconds() - start);
    OutFile *file = t->file;
    t->file = NULL;
    return file ? outfile_commit(file, diag) : STATUS_OK;
}

Status generate_translations(const Cli *cli, const Model *model, Diag *diag) {
    Translating t = {.cli = cli, .model = model};
    const Status status = run_translations(&t, diag);
    outfile_abandon(t.file);
    text_translator_close(t.translator);
    return status;
}
