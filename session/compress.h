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
 * Every function that can fail returns a status and leaves messages about what went
 * wrong in the context, worded as by the program `compress`. Nothing is printed, and no
 * signal is caught. If a small allocation fails, the program ends with the exit code
 * COMPRESS_MEMORY, unless a handler says otherwise (compress_on_memory); if a large one
 * fails, the call returns that status. If another program truncates a model file while
 * it is in use, SIGBUS is raised, as for any mapped file; at a limit of file size
 * (`ulimit -f`) SIGXFSZ is raised unless the host ignores it.
 *
 * During a call the calling thread has the locale "C" and the floating-point environment
 * that programs start with (rounding to nearest, no exception traps), and while any call
 * runs OpenBLAS has one thread; afterwards everything is restored, including the flags
 * of floating-point exceptions. Callbacks have the host's locale and environment. After
 * fork, a child may use the library too, with threads of its own, if no call was under
 * way at the fork. .h5 files are read and written in a short-lived child process: the
 * host may get SIGCHLD, and its waitpid(-1) may return a process that it does not know;
 * the call works all the same. A calling thread needs a stack of at least 512 KiB. On
 * processors with AMX the first product of bfloat16 or of bytes requests the AMX
 * registers from the system for the whole process: sigaltstack then needs 12 KiB.
 * dlclose does not unload the library.
 *
 * Paths are relative to the working directory, and may be any bytes. Texts are UTF-8 and
 * end with NUL; in messages any other bytes, for instance of a path, are written as
 * \xff. What a function returns in `T **out` belongs to the caller, to be freed as
 * documented there; after a failure it is NULL. Passing NULL for a required argument
 * returns COMPRESS_USAGE.
 *
 * Several threads may call at the same time, each with its own context (calls with the
 * same context wait for each other, and each call discards the messages of the one
 * before), and may use the same model as long as none changes or frees it. Calls that
 * run models may run concurrently: compress_run, compress_prepare,
 * compress_run_prepared, compress_write, compress_copy_writer, compress_translate,
 * compress_generate, compress_tokenize and compress_prepare_writer once they have read
 * the tokenizer, compress_predict of texts once its runner has; and, together with
 * these, one at a time of compress_prepare_translator, compress_load, compress_save,
 * compress_inspect. Calls that run passes (compress_apply, compress_plan,
 * compress_run_recipe, compress_plan_recipe, compress_add_plugin) change process-wide
 * state, so each waits until no other call is running, and calls that begin meanwhile
 * wait for it; therefore a callback must not wait for another thread's call. Each call
 * has its own threads: a host that answers several requests at once should give each
 * context its share of the processors, and all calls together should use no more threads
 * than OpenBLAS was built for, 64 or 128.
 *
 * The shared library exports exactly what this header declares. What a version promises:
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
    COMPRESS_DIFFERENT = 1, /* not returned by these functions */
    COMPRESS_USAGE = 2,     /* an argument or option is wrong */
    COMPRESS_RECIPE = 3,    /* passes or recipe do not bind */
    COMPRESS_FORMAT = 4,    /* a file is damaged or not what its name says */
    COMPRESS_MODEL = 5,     /* the model does not fit the pass, the data, the format */
    COMPRESS_IO = 6,        /* a file cannot be opened, read or written */
    COMPRESS_MEMORY = 7,    /* out of memory */
    COMPRESS_GATE = 8,      /* a gate of the recipe did not hold */
    COMPRESS_INTERNAL = 9,  /* a defect in compress itself; for passes, a folder is left,
                               named in the message, to rerun the step */
    COMPRESS_INTERRUPTED = 130 /* the caller asked for it: compress_watch */
} CompressStatus;

/* Holds the threads, messages and callbacks for the calls that use it. */
typedef struct CompressContext CompressContext;

/* A graph with its weights, configuration, tokenizer and history. */
typedef struct CompressModel CompressModel;

/* Version of the library, "0.1.0". */
COMPRESS_API const char *compress_version(void);

/* What a status means, in one line. The text belongs to the library. */
COMPRESS_API const char *compress_status_text(CompressStatus status);

/* Makes a context whose calls use up to `threads` threads; 0 = as many as the process
 * may keep busy. Results do not depend on the number. Fails with COMPRESS_USAGE if the
 * processor is older than what the library is compiled for. Close it with
 * compress_close. */
COMPRESS_API CompressStatus compress_open(CompressContext **out, int threads);

/* Frees the context; models stay. NULL is allowed. Does nothing in a callback. */
COMPRESS_API void compress_close(CompressContext *context);

/* Errors and warnings of the latest call, as lines `file:line:col: error: key: message`
 * with notes and hints indented below; "" when there are none. Valid until the next call
 * with the context. */
COMPRESS_API const char *compress_messages(const CompressContext *context);

/* Calls `progress` during long work, at most a few times a second: `done` of `total`
 * units of a step, and a short status text, which may be "". `cancelled` is called
 * between pieces of work (a piece always finishes): after each step and, in work of many
 * pieces, before the first piece and then before the next one once 0.2 seconds have
 * passed. If it returns non-zero, the call ends with COMPRESS_INTERRUPTED. Either may be
 * NULL.
 *
 * Both are called on the thread that made the call, and may call no function of the
 * library except compress_version and compress_status_text: other functions that return
 * a status return COMPRESS_USAGE, and compress_watch, compress_close and functions that
 * free a model, runner or writer do nothing, so the object must still be freed after the
 * call.
 *
 * A piece is 16 samples per thread in compress_run, compress_run_prepared and
 * compress_predict; one generated token, or 256 tokens of the prompt, in
 * compress_generate and compress_write; 16 texts in compress_translate; a step in
 * compress_apply and compress_run_recipe (`cancelled` is called after the last step too)
 * and, within steps that train or go over data, the batches that a thread takes at a
 * time. Most other steps do not ask before they end. `cancelled` is not called while
 * files are read or written, steps are planned, weights are packed or outputs are handed
 * over, so compress_load, compress_save, compress_inspect, compress_tokenize,
 * compress_plan, compress_plan_recipe, compress_add_plugin, compress_prepare,
 * compress_prepare_writer, compress_copy_writer and compress_prepare_translator cannot
 * be cancelled.
 */
COMPRESS_API void compress_watch(CompressContext *context, void *self,
                                 void (*progress)(void *self, int64_t done, int64_t total,
                                                  const char *text),
                                 int (*cancelled)(void *self));

/* Calls `handler` when a small allocation fails, on whatever thread that happens; if it
 * returns, the program ends with the exit code COMPRESS_MEMORY and prints nothing. The
 * handler must not call the library. Files being written are left incomplete under
 * temporary names. NULL = print one message and end with that exit code, as without this
 * call. Applies to the whole process. */
COMPRESS_API void compress_on_memory(void (*handler)(void *self), void *self);

/* ---- models ---- */

/* Reads a model of any format (`compress formats`), recognised by content: a Hugging
 * Face folder, .h5, .safetensors, .onnx, .gguf. Checks every hash and that all weights
 * are finite. Fails with COMPRESS_IO, COMPRESS_FORMAT, COMPRESS_MODEL. */
COMPRESS_API CompressStatus compress_load(CompressContext *context, const char *path,
                                          CompressModel **out);

/* Writes a model; the ending of `path` names the format, "name/" is a Hugging Face
 * folder. `options` is a YAML map as in a recipe's `output:`, without the path ("{dtype:
 * f16}"); NULL or "" = none. Replaces any file at `path` (a recipe's output replaces
 * only model files), and a folder that holds such a model and nothing else; the
 * replacement is atomic. Fails with COMPRESS_USAGE, COMPRESS_MODEL if the format cannot
 * hold it, COMPRESS_IO. */
COMPRESS_API CompressStatus compress_save(CompressContext *context,
                                          const CompressModel *model, const char *path,
                                          const char *options);

/* Returns a copy that shares weights until one of the two is changed. Never fails;
 * returns NULL for NULL. */
COMPRESS_API CompressModel *compress_copy(const CompressModel *model);

/* Frees a model. NULL is allowed. Does nothing in a callback. */
COMPRESS_API void compress_free_model(CompressModel *model);

/* Describes a model as JSON: inputs, outputs, stacks with layers and their nodes,
 * storages, totals, configuration and provenance, the same as `compress inspect --json`
 * without the path. Free it with compress_free_text. Fails with COMPRESS_MODEL. */
COMPRESS_API CompressStatus compress_inspect(CompressContext *context,
                                             const CompressModel *model, char **json);

/* Frees a text that a function returned. NULL is allowed. */
COMPRESS_API void compress_free_text(char *text);

/* ---- passes and recipes ---- */

/* Changes a model by passes. `passes` is YAML: a list of steps as in a recipe ("[prune:
 * {...}]"), or a map with `passes:` and what belongs to it (`data:`, `seed:`,
 * `snapshots` of steps, files that it `extends:`). Its `model:` and `output:` are
 * ignored; no checkpoint is kept and the context sets the number of threads: a warning
 * is given where `checkpoint:`, `keep:` or `threads:` ask for something else. All steps
 * are planned before the first one runs. What the model lacks it takes over from the
 * data sets: tokenizer, class names, how images are prepared. After a failure the model
 * is unchanged. `report`, unless NULL, receives what `compress --report` writes, also
 * after a failure once the passes have been bound; free it with compress_free_text.
 * Fails with COMPRESS_RECIPE, with COMPRESS_IO for an extended file, with COMPRESS_USAGE
 * for `processor:` like compress_run_recipe, and as the passes do. */
COMPRESS_API CompressStatus compress_apply(CompressContext *context, CompressModel *model,
                                           const char *passes, char **report);

/* Predicts what passes would make of a model, without running them. `plan` receives what
 * `compress plan --json` prints: sizes, FLOPs and memory after every step; free it with
 * compress_free_text. `passes` are as in compress_apply, and whatever compress_apply
 * refuses before its first step, such as data sets that do not fit the model, is refused
 * here with the same status; `processor:` is ignored. If a gate is predicted not to
 * hold: COMPRESS_GATE, and the plan up to that gate. */
COMPRESS_API CompressStatus compress_plan(CompressContext *context,
                                          const CompressModel *model, const char *passes,
                                          char **plan);

/* Loads passes from a plug-in (compress_plugin.h); from then on every context of the
 * process has them. Loading it again does nothing. Runs the plug-in's code. Fails with
 * COMPRESS_IO, COMPRESS_FORMAT if it is not a plug-in, COMPRESS_USAGE if its passes
 * cannot be added. */
COMPRESS_API CompressStatus compress_add_plugin(CompressContext *context,
                                                const char *path);

/* Runs a recipe file as `compress --recipe` does: reads its model and
 * data, runs it and writes its outputs; the context sets the number of threads. `sets`
 * are `count` changes to the recipe, "key=value" as for --set. `out` and `report` may be
 * NULL; otherwise they receive the resulting model, and the report as in compress_apply.
 * Fails as the recipe does, and with COMPRESS_USAGE if `processor:` asks for a level
 * that this program was not started with: the message names the variables.
 */
COMPRESS_API CompressStatus compress_run_recipe(CompressContext *context,
                                                const char *path, const char *const *sets,
                                                size_t count, CompressModel **out,
                                                char **report);

/* Like compress_plan, for a recipe file; only the shapes of its model are read. `sets`
 * as in compress_run_recipe. */
COMPRESS_API CompressStatus compress_plan_recipe(CompressContext *context,
                                                 const char *path,
                                                 const char *const *sets, size_t count,
                                                 char **plan);

/* ---- running a model ---- */

/* Element types. */
typedef enum CompressType {
    COMPRESS_F32 = 0,
    COMPRESS_I32 = 1,
    COMPRESS_I64 = 2
} CompressType;

#define COMPRESS_RANK_MAX 6

/* A dense array, row-major: dim[0] is the outermost dimension, the samples. */
typedef struct CompressTensor {
    const char *name; /* of the model's input or output */
    CompressType type;
    int rank;
    int64_t dim[COMPRESS_RANK_MAX];
    const void *data; /* inputs: owned by the caller, read during the call */
} CompressTensor;

/* Runs samples through a model. Every input of the model (compress_inspect names them
 * with their shapes: `input_ids : i32[N, T]`) needs a tensor of its name, and no other
 * tensors are allowed; an attention mask may be left out, and so may
 * token_type_ids, which are 0 then. `outputs` receives an array of
 * the model's `output_count` real-valued outputs, f32, in the model's order; free it
 * with compress_free_tensors. Weights are packed anew in each call; compress_prepare
 * does that once. Fails with COMPRESS_MODEL for inputs that do not fit, COMPRESS_MEMORY,
 * COMPRESS_INTERRUPTED. */
COMPRESS_API CompressStatus compress_run(CompressContext *context,
                                         const CompressModel *model,
                                         const CompressTensor *inputs, size_t count,
                                         CompressTensor **outputs, size_t *output_count);

/* Frees the array and its tensors. NULL is allowed. */
COMPRESS_API void compress_free_tensors(CompressTensor *tensors);

/* A model made ready to be run often: its weights are packed, and memory is kept from
 * one run to the next. */
typedef struct CompressRunner CompressRunner;

/* Makes a model ready, as it is now: later changes have no effect, and the model may be
 * freed first. Takes about the model's size in memory once more. Free it with
 * compress_free_runner. Fails with COMPRESS_MODEL, COMPRESS_MEMORY. */
COMPRESS_API CompressStatus compress_prepare(CompressContext *context,
                                             const CompressModel *model,
                                             CompressRunner **out);

/* Gives exactly the bytes of compress_run. Fastest when shapes repeat from call to call.
 * Several threads may run the same runner at once; they share the packed weights, and
 * each has its own memory for values, which the runner keeps. */
COMPRESS_API CompressStatus compress_run_prepared(CompressContext *context,
                                                  CompressRunner *runner,
                                                  const CompressTensor *inputs,
                                                  size_t count, CompressTensor **outputs,
                                                  size_t *output_count);

/* What to predict: a text, a pair of texts, or an image. */
typedef struct CompressSample {
    const char *text;
    const char *pair;  /* the second text of a pair; NULL = a text alone */
    const char *image; /* path of a PNG or JPEG file; text and pair are then NULL */
} CompressSample;

/* What a model says about samples, all texts or all images, as `compress run --json`
 * prints it: a JSON list with a map for each, with the sample as `input` and, depending
 * on the model's task, `label`, `score` and `scores` (a class), `labels` and `scores`
 * (several labels), `values`, `words` with a `label` each, `answer` and `score` (pairs
 * of a question and a text), `score`, or `embedding`; free it with compress_free_text.
 * Texts with more tokens than the model has positions are cut, with a warning. `options`
 * is a YAML map, NULL = none: tokenizer, a path, and preprocessor, the path of a
 * preprocessor_config.json, for models that contain none; the runner keeps the tokenizer
 * of its first call with texts. With `leave_early: true` samples leave at the model's
 * early exits by its stored rule (`compress run --leave-early`), and their maps have an
 * `exit_layer`; the first such call takes the model's size in memory once more, and
 * calls of this kind with the same runner wait for each other. Fails with COMPRESS_USAGE
 * if there is no tokenizer or preprocessor, COMPRESS_MODEL for a model that has none of
 * these outputs, takes other samples, has no exits or no rule, or whose class names do
 * not fit, COMPRESS_FORMAT for a text that is not UTF-8, and as compress_run does. */
COMPRESS_API CompressStatus compress_predict(CompressContext *context,
                                             CompressRunner *runner,
                                             const CompressSample *samples, size_t count,
                                             const char *options, char **json);

/* Cuts texts or pairs into tokens by the model's tokenizer, with special tokens and
 * without truncation: `json` receives what `compress tokenize` prints, a list with a map
 * for each with `input_ids`, for a pair `token_type_ids`, and `tokens`; free it with
 * compress_free_text. `options` is a YAML map, NULL = none: tokenizer, a path, for a
 * model that contains none. The tokenizer is read anew in each call. Fails with
 * COMPRESS_USAGE if there is none and for images, COMPRESS_FORMAT for a text that is not
 * UTF-8. */
COMPRESS_API CompressStatus compress_tokenize(CompressContext *context,
                                              const CompressModel *model,
                                              const CompressSample *texts, size_t count,
                                              const char *options, char **json);

/* Frees a runner. NULL is allowed. Does nothing in a callback. */
COMPRESS_API void compress_free_runner(CompressRunner *runner);

/* Continues a text with a decoder-only language model; NULL = "", which starts from the
 * vocabulary's beginning-of-text token, if it has one. `options` is a YAML map, NULL or
 * "" = none: max_tokens (128), temperature (0 = the likeliest token), top_k, top_p,
 * min_p, repetition_penalty, seed, stop (texts before which it ends), and tokenizer, a
 * path, for a model that contains none. `text` receives what was generated, without the
 * prompt; it ends where the vocabulary's end token was drawn; free it with
 * compress_free_text. The text is the same as that of `compress generate`. Weights are
 * packed anew in each call; a writer does that once. Fails with COMPRESS_USAGE, with
 * COMPRESS_MODEL for a model that does not generate token by token or whose logits are
 * not finite, COMPRESS_FORMAT for
 * a prompt that is not UTF-8. */
COMPRESS_API CompressStatus compress_generate(CompressContext *context,
                                              const CompressModel *model,
                                              const char *prompt, const char *options,
                                              char **text);

/* A language model made ready to write texts, one after the other: calls with the same
 * writer wait for each other. */
typedef struct CompressWriter CompressWriter;

/* Makes a model ready to write, as it is now: it may be changed or freed afterwards.
 * `options` is a YAML map, NULL or "" = none: context, the most tokens of a prompt and
 * its continuation together (2048, or fewer if the model has a table of positions), for
 * which memory is allocated, and tokenizer as in compress_generate. Free it with
 * compress_free_writer. Fails as compress_generate does. */
COMPRESS_API CompressStatus compress_prepare_writer(CompressContext *context,
                                                    const CompressModel *model,
                                                    const char *options,
                                                    CompressWriter **out);

/* Writes exactly the text of compress_generate, with the same options except the
 * tokenizer; the default of max_tokens is the room that is left if that is less than
 * 128. If a prompt continues what the writer has read and written, as in a conversation,
 * only the new part takes time. `piece`, unless NULL, is called with the text piece by
 * piece, as soon as it is certain, in whole characters, on the thread that made the
 * call. If it returns non-zero the text ends and it is not called again; it must not
 * call the library. `text`, unless NULL, receives the whole text; free it with
 * compress_free_text. Fails with COMPRESS_USAGE also for more tokens than its
 * context. */
COMPRESS_API CompressStatus compress_write(CompressContext *context,
                                           CompressWriter *writer, const char *prompt,
                                           const char *options,
                                           int (*piece)(void *self, const char *text),
                                           void *self, char **text);

/* Makes another writer with the same model, tokenizer and context that has read nothing
 * yet: it shares the packed weights, and takes memory for one more text, such as a
 * parallel conversation, and for the context's threads, which wait. Waits until `writer`
 * is not writing. Free it with compress_free_writer, before or after the other. Fails
 * with COMPRESS_MEMORY. */
COMPRESS_API CompressStatus compress_copy_writer(CompressContext *context,
                                                 CompressWriter *writer,
                                                 CompressWriter **out);

/* Frees a writer. NULL is allowed. Does nothing in a callback. */
COMPRESS_API void compress_free_writer(CompressWriter *writer);

/* A model that translates, made ready to do so often: calls with the same translator wait
 * for each other. */
typedef struct CompressTranslator CompressTranslator;

/* Makes an encoder-decoder model ready to translate, as it is now: it may be changed or
 * freed afterwards. `options` is a YAML map, NULL or "" = none: max_tokens of a
 * translation (128), beam (4 hypotheses; 1 = greedy), length_penalty (1; scores are sums
 * of log-probabilities divided by the length raised to length_penalty) and, for a model
 * that contains none, tokenizer, a path, and target_tokenizer if each language has its
 * own. The translator keeps the context's number of threads. Takes about the model's
 * size in memory once more. Free it with compress_free_translator. Fails with
 * COMPRESS_USAGE if there is no tokenizer, COMPRESS_MODEL for a model that cannot
 * translate or does not fit its tokenizers, COMPRESS_MEMORY. */
COMPRESS_API CompressStatus compress_prepare_translator(CompressContext *context,
                                                        const CompressModel *model,
                                                        const char *options,
                                                        CompressTranslator **out);

/* Translates texts, up to 16 at a time, as `compress generate --prompts` does: `json`
 * receives a list with a map for each with `text`, `tokens` (generated, without the end
 * token), `ended` ("end", or "length" after max_tokens) and `score`; free it with
 * compress_free_text. Fails with COMPRESS_USAGE for a text without tokens,
 * COMPRESS_FORMAT for one that is not UTF-8, COMPRESS_MODEL for logits that are not
 * finite, COMPRESS_MEMORY, COMPRESS_INTERRUPTED. */
COMPRESS_API CompressStatus compress_translate(CompressContext *context,
                                               CompressTranslator *translator,
                                               const char *const *texts, size_t count,
                                               char **json);

/* Frees a translator. NULL is allowed. Does nothing in a callback. */
COMPRESS_API void compress_free_translator(CompressTranslator *translator);

#ifdef __cplusplus
}
#endif

#endif
