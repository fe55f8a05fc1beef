/* compress: trained transformers made smaller, as a library.
 *
 *     CompressContext *context;
 *     CompressModel *model;
 *     if (compress_open(&context, 0) != COMPRESS_OK) return 1;
 *     CompressStatus status = compress_load(context, "bert/", &model);
 *     if (status == COMPRESS_OK)
 *         status = compress_apply(context, model, "[quantize: {dtype: int8}]", NULL);
 *     if (status == COMPRESS_OK) status = compress_save(context, model, "bert.h5", NULL);
 *     if (status != COMPRESS_OK) fputs(compress_messages(context), stderr);
 *     compress_free_model(model);
 *     compress_close(context);
 *
 * Every function that can fail returns a status and leaves what went wrong in the
 * context, in the words of the program `compress`. Nothing is printed, and no signal is
 * caught. Where small memory runs out, the program ends with the exit code
 * COMPRESS_MEMORY, unless a handler says otherwise (compress_on_memory); large memory
 * gives that status. A model file that another program makes shorter while it is in use
 * raises SIGBUS, as a mapped file does; where a limit of file size (`ulimit -f`) is met,
 * SIGXFSZ is raised unless the host ignores it.
 *
 * For the time of a call the calling thread has the locale "C" and the floating-point
 * environment that programs start with (rounding to the nearest, no exception traps), and
 * while any call runs OpenBLAS has one thread; then all are what they were, flags of
 * floating-point exceptions too. Callbacks have the host's locale and environment. A
 * child of a process that has used the library may use it as well, on threads of its own,
 * if no call was under way at the fork. A file of .h5 is read and written by a child of
 * the process, which is there for a moment: the host may get SIGCHLD, and its waitpid(-1)
 * a process that it does not know, which does no harm to the call. A thread that calls
 * has a stack of at least 512 KiB. On processors with AMX the first product of bfloat16
 * or of bytes asks the system for its registers, for the whole process: sigaltstack then
 * wants 12 KiB. dlclose leaves the library where it is.
 *
 * Paths are relative to the working directory, and may be any bytes. Texts are UTF-8 and
 * end with NUL; in messages other bytes, as of a path, stand as \xff. What a
 * function gives as `T **out` is the caller's, to be freed as said there; after a failure
 * it is NULL. NULL where something is needed is COMPRESS_USAGE.
 *
 * Several threads may call at the same time, each with a context of its own (calls with
 * the same one wait for each other, and the next ends the messages of the one before),
 * and may use the same model as long as none changes or frees it. What runs models runs
 * side by side: compress_run, compress_prepare, compress_run_prepared, compress_write,
 * compress_copy_writer, compress_translate, compress_generate, compress_tokenize and
 * compress_prepare_writer once they have read the tokenizer, compress_predict of texts
 * once its runner has; and beside these one at a time of compress_prepare_translator,
 * compress_load, compress_save, compress_inspect. What has passes (compress_apply,
 * compress_plan, compress_run_recipe, compress_plan_recipe, compress_add_plugin) sets
 * what is the process's: it waits until no other call runs, and calls that begin
 * meanwhile wait for it, so that a callback must not wait for another thread's call. Each
 * call has threads of its own: who answers several requests at once gives each context
 * its share of the processors, and all that run at a time no more than OpenBLAS was built
 * for, 64 or 128.
 *
 * This header is all that the shared library exports. What a version promises:
 * docs/compatibility.md. */
#ifndef COMPRESS_H
#define COMPRESS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COMPRESS_API __attribute__((visibility("default")))

/* How a call ended; the same numbers as the exit codes of `compress`. */
typedef enum CompressStatus {
    COMPRESS_OK = 0,
    COMPRESS_DIFFERENT = 1,    /* not returned by these functions */
    COMPRESS_USAGE = 2,        /* an argument or option is wrong */
    COMPRESS_RECIPE = 3,       /* passes or recipe do not bind */
    COMPRESS_FORMAT = 4,       /* a file is damaged or not what its name says */
    COMPRESS_MODEL = 5,        /* the model does not fit the pass, the data, the format */
    COMPRESS_IO = 6,           /* a file cannot be opened, read or written */
    COMPRESS_MEMORY = 7,       /* out of memory */
    COMPRESS_GATE = 8,         /* a gate of the recipe did not hold */
    COMPRESS_INTERNAL = 9,     /* a defect in compress itself; of passes, a folder is left
                                  that the message names, to run the step again */
    COMPRESS_INTERRUPTED = 130 /* the caller asked for it: compress_watch */
} CompressStatus;

/* Threads, messages and callbacks of the calls that it is given to. */
typedef struct CompressContext CompressContext;

/* A graph with its weights, configuration, tokenizer and history. */
typedef struct CompressModel CompressModel;

/* Version of the library, "0.1.0". */
COMPRESS_API const char *compress_version(void);

/* What a status means, in one line. The text is the library's. */
COMPRESS_API const char *compress_status_text(CompressStatus status);

/* Makes a context whose calls use up to `threads` threads; 0 = as many as the process may
 * keep busy. Results do not depend on their number. Fails with COMPRESS_USAGE where the
 * processor is older than what the library is compiled for. To be closed. */
COMPRESS_API CompressStatus compress_open(CompressContext **out, int threads);

/* Frees the context. Models stay. NULL is allowed. In a callback: nothing is done. */
COMPRESS_API void compress_close(CompressContext *context);

/* Errors and warnings of the latest call, as lines `file:line:col: error: key: message`
 * with notes and hints indented below; "" when there are none. Valid until the next call
 * with the context. */
COMPRESS_API const char *compress_messages(const CompressContext *context);

/* Calls `progress` during long work, at most a few times a second: `done` of `total`
 * units of a step, and a short state as text, which may be "". `cancelled` is asked
 * between pieces of work, which end first: after each step, and of many pieces in front
 * of the first one and then of the next as soon as 0.2 seconds have gone by. Not 0 = the
 * call ends with COMPRESS_INTERRUPTED. Either may be NULL.
 *
 * They are called on the thread that made the call, and call no function of the library
 * but compress_version and compress_status_text: others that return a status end with
 * COMPRESS_USAGE, and compress_watch, compress_close and what frees a model, runner or
 * writer do nothing, so that it is still to be freed when the call has ended.
 *
 * The pieces are, of compress_run, compress_run_prepared and compress_predict, 16 samples
 * for each thread; of compress_generate and compress_write, a token that is made and 256
 * of the prompt; of compress_translate, 16 texts; of compress_apply and
 * compress_run_recipe, a step, after the last of which they ask as well, and within steps
 * that train or go over data, the batches that a thread takes at a time. Steps that do
 * neither mostly do not ask before they end. Nobody asks while files are read and
 * written, steps are planned, weights are packed, outputs are handed over: compress_load,
 * compress_save, compress_inspect, compress_tokenize, compress_plan,
 * compress_plan_recipe, compress_add_plugin, compress_prepare, compress_prepare_writer,
 * compress_copy_writer and compress_prepare_translator cannot be cancelled.
 */
COMPRESS_API void compress_watch(CompressContext *context, void *self,
                                 void (*progress)(void *self, int64_t done, int64_t total,
                                                  const char *text),
                                 int (*cancelled)(void *self));

/* Calls `handler` when memory for small things runs out, from whatever thread finds out;
 * if it returns, the program ends with the exit code COMPRESS_MEMORY, and nothing is
 * printed; it calls nothing of the library. Files being written are left incomplete under
 * temporary names. NULL: one message and that exit code, as without this call. For the
 * whole process. */
COMPRESS_API void compress_on_memory(void (*handler)(void *self), void *self);

/* ---- models ---- */

/* Reads a model of any format (`compress formats`), told apart by content: a Hugging Face
 * folder, .h5, .safetensors, .onnx, .gguf. Every hash is checked, and that weights are
 * finite. Fails with COMPRESS_IO, COMPRESS_FORMAT, COMPRESS_MODEL. */
COMPRESS_API CompressStatus compress_load(CompressContext *context, const char *path,
                                          CompressModel **out);

/* Writes a model; the ending of `path` names the format, "name/" is a Hugging Face
 * folder. `options` is a map in YAML as a recipe's `output:` takes it, without the path
 * ("{dtype: f16}"); NULL or "" = none. A file at `path` is replaced whatever it is, where
 * a recipe's output replaces model files alone, and a folder that holds such a model and
 * nothing else; at once and by all of the new. Fails with COMPRESS_USAGE, COMPRESS_MODEL
 * where the format cannot hold it, COMPRESS_IO. */
COMPRESS_API CompressStatus compress_save(CompressContext *context,
                                          const CompressModel *model, const char *path,
                                          const char *options);

/* A copy, which shares weights until one of the two is changed. Never fails; NULL gives
 * NULL. */
COMPRESS_API CompressModel *compress_copy(const CompressModel *model);

/* Frees a model. NULL is allowed. In a callback: nothing is done. */
COMPRESS_API void compress_free_model(CompressModel *model);

/* What a model is made of, as JSON: inputs, outputs, stacks with layers and their nodes,
 * storages, totals, configuration and provenance, the same as `compress inspect --json`
 * without the path. To be freed with compress_free_text. Fails with COMPRESS_MODEL. */
COMPRESS_API CompressStatus compress_inspect(CompressContext *context,
                                             const CompressModel *model, char **json);

/* Frees a text that a function gave. NULL is allowed. */
COMPRESS_API void compress_free_text(char *text);

/* ---- passes and recipes ---- */

/* Changes a model by passes. `passes` is YAML: a list of steps as in a recipe ("[prune:
 * {...}]"), or a map with `passes:` and what goes with it (`data:`, `seed:`, `snapshots`
 * of steps, files that it `extends:`). Its `model:` and `output:` are left alone; no
 * checkpoint is kept and the context has the number of threads: what `checkpoint:`,
 * `keep:` and `threads:` say otherwise is warned of. Steps are planned before the first
 * one runs. The model takes along what it came without and the data sets have: tokenizer,
 * names of classes, how images are prepared. After a failure the model is as it was.
 * `report`, unless NULL, gets what `compress --report` writes, also after a failure once
 * the passes bind; to be freed with compress_free_text. Fails with COMPRESS_RECIPE, with
 * COMPRESS_IO for a file that is extended, with COMPRESS_USAGE for `processor:` as
 * compress_run_recipe does, and as the passes do. */
COMPRESS_API CompressStatus compress_apply(CompressContext *context, CompressModel *model,
                                           const char *passes, char **report);

/* Foretells what passes would make of a model, without running them. `plan` gets what
 * `compress plan --json` prints: sizes, FLOPs and memory after every step; to be freed
 * with compress_free_text. `passes` are as in compress_apply, and what that refuses
 * before its first step, data sets that do not fit the model say, is refused here with
 * the same status; `processor:` is not looked at. Where a gate is foretold not to hold:
 * COMPRESS_GATE, and the plan up to there. */
COMPRESS_API CompressStatus compress_plan(CompressContext *context,
                                          const CompressModel *model, const char *passes,
                                          char **plan);

/* Loads passes from a plug-in (compress_plugin.h), which every context of the process has
 * from then on; loading it again does nothing. Runs the plug-in's code. Fails with
 * COMPRESS_IO, COMPRESS_FORMAT where it is none, COMPRESS_USAGE where its passes cannot
 * be added. */
COMPRESS_API CompressStatus compress_add_plugin(CompressContext *context,
                                                const char *path);

/* Runs a recipe from its file as `compress --recipe` does: reads its
 * model and data, runs it and writes its outputs; the context has the number of threads.
 * `sets` are `count` changes of the recipe, "key=value" as --set takes them. `out` and
 * `report` may be NULL; else they get the model that came out, and the report as in
 * compress_apply. Fails as the recipe does, and with COMPRESS_USAGE where `processor:`
 * wants a level that this program was not started with: the message names the variables.
 */
COMPRESS_API CompressStatus compress_run_recipe(CompressContext *context,
                                                const char *path, const char *const *sets,
                                                size_t count, CompressModel **out,
                                                char **report);

/* The same for a recipe from its file; of its model the shapes alone are read. `sets` as
 * in compress_run_recipe. */
COMPRESS_API CompressStatus compress_plan_recipe(CompressContext *context,
                                                 const char *path,
                                                 const char *const *sets, size_t count,
                                                 char **plan);

/* ---- running a model ---- */

/* Types of elements. */
typedef enum CompressType {
    COMPRESS_F32 = 0,
    COMPRESS_I32 = 1,
    COMPRESS_I64 = 2
} CompressType;

#define COMPRESS_RANK_MAX 6

/* A dense array, row-major: dim[0] is the outermost dimension, of samples. */
typedef struct CompressTensor {
    const char *name; /* of the model's input or output */
    CompressType type;
    int rank;
    int64_t dim[COMPRESS_RANK_MAX];
    const void *data; /* inputs: the caller's, read during the call */
} CompressTensor;

/* Runs samples through a model. Every input of the model (compress_inspect names them
 * with their shapes: `input_ids : i32[N, T]`) needs a tensor of its name, and no tensor
 * has another name; an attention mask may be left out. `outputs` gets an array of the
 * model's real outputs, f32, `output_count` of them, in its order; to be freed with
 * compress_free_tensors. Weights are packed anew in each call: compress_prepare does that
 * once. Fails with COMPRESS_MODEL for inputs that do not fit, COMPRESS_MEMORY,
 * COMPRESS_INTERRUPTED. */
COMPRESS_API CompressStatus compress_run(CompressContext *context,
                                         const CompressModel *model,
                                         const CompressTensor *inputs, size_t count,
                                         CompressTensor **outputs, size_t *output_count);

/* Frees the array and its tensors. NULL is allowed. */
COMPRESS_API void compress_free_tensors(CompressTensor *tensors);

/* A model made ready to be run often: its weights are packed, and memory stays from one
 * run to the next. */
typedef struct CompressRunner CompressRunner;

/* Makes a model ready, as it is now: what is changed afterwards does not count, and it
 * may be freed before. Takes about the model's size in memory once more. To be freed with
 * compress_free_runner. Fails with COMPRESS_MODEL, COMPRESS_MEMORY. */
COMPRESS_API CompressStatus compress_prepare(CompressContext *context,
                                             const CompressModel *model,
                                             CompressRunner **out);

/* As compress_run, to the byte; samples of the shapes of the call before take the least
 * time. Several threads may run the same runner at once, over the same packed weights,
 * each in memory of its own for values, which the runner keeps. */
COMPRESS_API CompressStatus compress_run_prepared(CompressContext *context,
                                                  CompressRunner *runner,
                                                  const CompressTensor *inputs,
                                                  size_t count, CompressTensor **outputs,
                                                  size_t *output_count);

/* What to predict: a text, a pair of texts, or an image. */
typedef struct CompressSample {
    const char *text;
    const char *pair;  /* the second text of a pair; NULL = a text alone */
    const char *image; /* path of a PNG or JPEG; then the others are NULL */
} CompressSample;

/* What a model says of samples, all texts or all images, as `compress run --json` tells
 * it: a JSON list of a map for each, with the sample as `input` and by the model's task
 * `label`, `score` and `scores` (a class), `labels` and `scores` (several labels),
 * `values`, `words` with a `label` each, `answer` and `score` (pairs of a question and a
 * text), `score`, or `embedding`; to be freed with compress_free_text. Texts of more
 * tokens than the model has positions are cut, with a warning. `options` is a map in
 * YAML, NULL = none: tokenizer, a path, and preprocessor, that of a
 * preprocessor_config.json, for models that have none in them; the runner keeps the
 * tokenizer of its first call with texts. With `leave_early: true` samples leave at the
 * model's early exits by the rule that is stored in it (`compress run --leave-early`),
 * and their maps have an `exit_layer`; the first such call takes the model's size in
 * memory once more, and such calls with the same runner wait for each other. Fails with
 * COMPRESS_USAGE where there is no tokenizer or preparation, COMPRESS_MODEL for a model
 * that says none of these, that takes other samples, that has no exits or no rule, or
 * whose names of classes do not fit, COMPRESS_FORMAT for a text that is not UTF-8, and as
 * compress_run. */
COMPRESS_API CompressStatus compress_predict(CompressContext *context,
                                             CompressRunner *runner,
                                             const CompressSample *samples, size_t count,
                                             const char *options, char **json);

/* The tokens of texts or pairs by the model's tokenizer, special ones around them,
 * nothing cut: `json` gets what `compress tokenize` prints, a list of a map for each with
 * `input_ids`, of a pair `token_type_ids`, and `tokens`; to be freed with
 * compress_free_text. `options` is a map in YAML, NULL = none: tokenizer, a path, for a
 * model that has none in it. The tokenizer is read anew in each call. Fails with
 * COMPRESS_USAGE where there is none and for images, COMPRESS_FORMAT for a text that is
 * not UTF-8. */
COMPRESS_API CompressStatus compress_tokenize(CompressContext *context,
                                              const CompressModel *model,
                                              const CompressSample *texts, size_t count,
                                              const char *options, char **json);

/* Frees a runner. NULL is allowed. In a callback: nothing is done. */
COMPRESS_API void compress_free_runner(CompressRunner *runner);

/* Goes on with a text by a language model that has only a decoder; NULL = "", from the
 * vocabulary's token for the beginning, if it has one. `options` is a map in YAML, NULL
 * or "" = none: max_tokens (128), temperature (0 = the likeliest token), top_k, top_p,
 * min_p, repetition_penalty, seed, stop (texts in front of which it ends), and tokenizer,
 * a path, for a model that has none in it. `text` gets what was made, without the prompt,
 * and ends where the vocabulary's end was drawn; to be freed with compress_free_text. The
 * same text as of `compress generate`. Weights are packed anew in each call: a writer
 * does that once. Fails with COMPRESS_USAGE, with COMPRESS_MODEL for a model that
 * generates nothing token by token, COMPRESS_FORMAT for a prompt that is not UTF-8. */
COMPRESS_API CompressStatus compress_generate(CompressContext *context,
                                              const CompressModel *model,
                                              const char *prompt, const char *options,
                                              char **text);

/* A language model made ready to write texts, one after the other: calls with the same
 * writer wait for each other. */
typedef struct CompressWriter CompressWriter;

/* Makes a model ready to write, as it is now: it may be changed or freed afterwards.
 * `options` is a map in YAML, NULL or "" = none: context, the most tokens of a prompt and
 * what is made (2048, or fewer where the model has a table of positions), for which
 * memory is taken, and tokenizer as in compress_generate. To be freed with
 * compress_free_writer. Fails as compress_generate does. */
COMPRESS_API CompressStatus compress_prepare_writer(CompressContext *context,
                                                    const CompressModel *model,
                                                    const char *options,
                                                    CompressWriter **out);

/* Writes a text as compress_generate does, to the byte, and with its options but the
 * tokenizer; max_tokens is what there is room for where that is less than 128. A prompt
 * that goes on with what the writer has read and written, as in a conversation, takes the
 * time of what is new in it. `piece`, unless NULL, is given the text piece by piece, as
 * soon as it is certain, in whole characters, on the thread that made the call; it ends
 * the text by returning not 0, is not called again then, and calls nothing of the
 * library. `text`, unless NULL, gets all of it; to be freed with compress_free_text.
 * Fails with COMPRESS_USAGE for more tokens than its context, too. */
COMPRESS_API CompressStatus compress_write(CompressContext *context,
                                           CompressWriter *writer, const char *prompt,
                                           const char *options,
                                           int (*piece)(void *self, const char *text),
                                           void *self, char **text);

/* Another writer of the same model, tokenizer and context, which has read nothing: it
 * shares the packed weights, and takes memory for one more text, as of a conversation
 * beside others, and for the context's threads, which wait. Waits until `writer` is not
 * writing. To be freed with compress_free_writer, before the other or after. Fails with
 * COMPRESS_MEMORY. */
COMPRESS_API CompressStatus compress_copy_writer(CompressContext *context,
                                                 CompressWriter *writer,
                                                 CompressWriter **out);

/* Frees a writer. NULL is allowed. In a callback: nothing is done. */
COMPRESS_API void compress_free_writer(CompressWriter *writer);

/* A model that translates, made ready to do so often: calls with the same translator wait
 * for each other. */
typedef struct CompressTranslator CompressTranslator;

/* Makes an encoder-decoder model ready to translate, as it is now: it may be changed or
 * freed afterwards. `options` is a map in YAML, NULL or "" = none: max_tokens of a
 * translation (128), beam (4 hypotheses; 1 = greedy), length_penalty (1; scores are sums
 * of log-probabilities divided by so high a power of the length), and for a model that
 * has none in it tokenizer, a path, and target_tokenizer where languages have their own.
 * The translator keeps the context's number of threads. Takes about the model's size in
 * memory once more. To be freed with compress_free_translator. Fails with COMPRESS_USAGE
 * where there is no tokenizer, COMPRESS_MODEL for a model that translates nothing or does
 * not fit its tokenizers, COMPRESS_MEMORY. */
COMPRESS_API CompressStatus compress_prepare_translator(CompressContext *context,
                                                        const CompressModel *model,
                                                        const char *options,
                                                        CompressTranslator **out);

/* Translates texts, up to 16 side by side, as `compress generate --prompts` does: `json`
 * gets a list of a map for each with `text`, `tokens` (made, without the end), `ended`
 * ("end", or "length" after max_tokens) and `score`; to be freed with compress_free_text.
 * Fails with COMPRESS_USAGE for a text without tokens, COMPRESS_FORMAT for one that is
 * not UTF-8, COMPRESS_MEMORY, COMPRESS_INTERRUPTED. */
COMPRESS_API CompressStatus compress_translate(CompressContext *context,
                                               CompressTranslator *translator,
                                               const char *const *texts, size_t count,
                                               char **json);

/* Frees a translator. NULL is allowed. In a callback: nothing is done. */
COMPRESS_API void compress_free_translator(CompressTranslator *translator);

#ifdef __cplusplus
}
#endif

#endif
