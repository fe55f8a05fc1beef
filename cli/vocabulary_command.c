/* compress vocabulary: a tokenizer of whole words from a training text. */
#include "cli/command.h"
#include "cli/text_table.h"
#include "io/tokenizers/word_vocabulary.h"
#include "session/output_files.h"

Status command_vocabulary(const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    const WordVocabularyOptions options = {.path = cli->args[0],
                                           .columns = flags->column,
                                           .split = (WordSplit)flags->split,
                                           .lowercase = flags->lowercase,
                                           .min_count = flags->min_count,
                                           .max_size = flags->max_size};
    WordVocabularyReport report;
    if (!flags->output) {
        diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL, "expected --output FILE");
        diag_hint(diag, "tokenizer.json beside the model is found by `generate`");
        return STATUS_USAGE;
    }
    TRY(output_check(cli->arena, "--output", flags->output, diag));
    if (!flags->force)
        TRY(output_replace_check("--output", flags->output, OUTPUT_VOCABULARY,
                                 &(StringList){cli->args, 1}, diag));
    TRY(word_vocabulary_write(&report, flags->output, &options, diag));
    const double share = 100.0 * (double)report.covered / (double)report.words;
    printf("wrote %s, %s tokens: %s of %s different words, %.2f %% of %s in %s texts\n",
           flags->output, text_grouped(cli->arena, report.size),
           text_grouped(cli->arena, report.size - 4),
           text_grouped(cli->arena, report.different), share,
           text_grouped(cli->arena, report.words),
           text_grouped(cli->arena, report.texts));
    return STATUS_OK;
}
