/* Net files: the mapped files that a net is read from, and where stored tensors have
 * their bytes in them. For net_read.c; functions on tensors for other code are in
 * net.h. */
#ifndef COMPRESS_IO_ONNX_NET_NET_FILES_H
#define COMPRESS_IO_ONNX_NET_NET_FILES_H

#include "io/onnx/net/net.h"

typedef struct NetFiles NetFiles;

/* Without files yet; in an arena. */
NetFiles *net_files_create(Arena *arena);

/* Maps a file (a net has at most two) and reads its messages. Fails with STATUS_FORMAT
 * or STATUS_IO. */
Status net_files_open(Net *net, const char *path, const OnnxModel **out, Diag *diag);

/* Checks that a stored tensor is what it declares, notes where external data lies, and
 * maps its file. Fails with STATUS_FORMAT at `at`, or with STATUS_IO. */
Status net_files_check(Net *net, const OnnxTensor *tensor, Loc at, Diag *diag);

/* Call when all tensors have been checked, before net_bytes of external ones. */
void net_files_sort(Net *net);

/* Whether a tensor's bytes are in a separate file. */
bool net_is_external(const OnnxTensor *tensor);

/* Releases messages and mappings. */
void net_files_close(NetFiles *files);

#endif
