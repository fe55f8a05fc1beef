/* Jobs: see session/job.h. */
#include "session/job.h"

#include "exec/run/ranks.h"
#include "io/files/file.h"
#include "ir/tensor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

bool job_leads(void) {
    return ranks_number() == 0;
}

Status job_join(Status mine, Diag *diag) {
    TRY(ranks_open(diag));
    return ranks_agree(mine, diag);
}

Status job_agree(Session *session, Status mine, Diag *diag) {
    const Status status = ranks_agree(mine, diag);
    session->failed.known |= status != STATUS_OK;
    return status;
}

Status job_same(const char *text, Status status, Loc at, const char *what,
                const char *hint, Diag *diag) {
    char own[HASH_TEXT_BYTES], first[HASH_TEXT_BYTES];
    if (ranks_count() == 1) return STATUS_OK;
    bytes_hash(text, strlen(text), own);
    memcpy(first, own, sizeof first);
    TRY(ranks_broadcast(first, sizeof first, 0, diag));
    Status mine = STATUS_OK;
    if (memcmp(own, first, sizeof first) != 0) {
        mine =
            diag_fail(diag, status, at, NULL, "%s is another one than on rank 0", what);
        if (hint) diag_hint(diag, "%s", hint);
    }
    return ranks_agree(mine, diag);
}

/* The step of the plan that trains with the fewest shards, NULL = none trains. */
static const ReportStep *fewest_shards(const RunReport *plan) {
    const ReportStep *found = NULL;
    for (int i = 0; i < plan->count; i++) {
        const int64_t shards = plan->steps[i].result.train_shards;
        if (shards > 0 && (!found || shards < found->result.train_shards))
            found = &plan->steps[i];
    }
    return found;
}

void job_warn_idle(const Session *session, Diag *diag) {
    const ReportStep *idle = fewest_shards(&session->planned);
    const long long ranks = ranks_count();
    if (!idle || idle->result.train_shards >= ranks) return;
    const StepSource *source = &idle->step->source;
    const long long shards = (long long)idle->result.train_shards;
    const long long samples = (long long)idle->result.train_work.samples;
    const long long threads = ranks * session->threads;
    const char *advice =
        samples < ranks
            ? arena_printf(session->arena, "its mini-batches have %lld samples", samples)
            : arena_printf(session->arena,
                           "`shards: %lld` would use all of them and their threads; the "
                           "bytes of results depend on the number of shards",
                           threads < samples ? threads : samples);
    diag_warn(diag, option_loc(source, "shards"), source->key,
              "%lld of %lld ranks have no shard in step %d (shards: %lld): %s",
              ranks - shards, ranks, (int)(idle - session->planned.steps) + 1, shards,
              advice);
}

Status job_send_text(Text *text, Diag *diag) {
    uint64_t length = text->length;
    if (ranks_count() == 1) return STATUS_OK;
    TRY(ranks_broadcast(&length, sizeof length, 0, diag));
    if (length == 0) return STATUS_OK;
    char *bytes = job_leads() ? text->data : memory_alloc((size_t)length, 1);
    const Status status = ranks_broadcast(bytes, (size_t)length, 0, diag);
    if (job_leads()) return status;
    if (status == STATUS_OK) text_bytes(text, bytes, (size_t)length);
    free(bytes);
    return status;
}

/* ---- files ---- */

/* Rank 0's side. */
static Status send_bytes(const Buf *bytes, Diag *diag) {
    uint64_t length = buf_bytes(bytes);
    TRY(ranks_broadcast(&length, sizeof length, 0, diag));
    return ranks_broadcast((void *)(uintptr_t)buf_data(bytes), (size_t)length, 0, diag);
}

/* The others': room for the file in memory, as a file. */
static Status make_copy(JobFile *file, void **data, size_t length, Diag *diag) {
    *data = MAP_FAILED;
    file->descriptor = memfd_create("compress", MFD_CLOEXEC);
    if (file->descriptor >= 0 && ftruncate(file->descriptor, (off_t)length) == 0)
        *data =
            mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor, 0);
    if (*data != MAP_FAILED) return STATUS_OK;
    return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                     "no room for %zu bytes that rank 0 sends: %s", length,
                     strerror(errno));
}

static Status receive_bytes(JobFile *file, Diag *diag) {
    uint64_t length = 0;
    void *data = NULL;
    TRY(ranks_broadcast(&length, sizeof length, 0, diag));
    const Status made = make_copy(file, &data, (size_t)length, diag);
    if (made != STATUS_OK) return ranks_agree(made, diag);
    const Status status = ranks_broadcast(data, (size_t)length, 0, diag);
    munmap(data, (size_t)length);
    snprintf(file->copy, sizeof file->copy, "/proc/self/fd/%d", file->descriptor);
    file->path = file->copy;
    return status;
}

Status job_send_file(JobFile *file, const char *path, Diag *diag) {
    char sent = path != NULL;
    *file = (JobFile){.path = path, .descriptor = -1};
    if (ranks_count() == 1) return STATUS_OK;
    TRY(ranks_broadcast(&sent, 1, 0, diag));
    file->path = NULL;
    if (!sent) return STATUS_OK;
    if (!job_leads()) return receive_bytes(file, diag);
    Buf *bytes = NULL;
    Status status = file_map(&bytes, path, diag);
    if (status != STATUS_OK) return ranks_agree(status, diag);
    status = send_bytes(bytes, diag);
    buf_release(bytes);
    file->path = path;
    return status;
}

void job_file_close(JobFile *file) {
    if (file->descriptor >= 0) close(file->descriptor);
    file->descriptor = -1;
}
