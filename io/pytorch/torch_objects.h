/* PyTorch's objects in pickles: the names that a pickle may use, and the plain values
 * that stand for what PyTorch would make from them. Nothing is called; a name that is
 * not listed is refused. Source: torch/_utils.py and torch/serialization.py of PyTorch
 * 1.0 to 2.x. */
#ifndef COMPRESS_IO_PYTORCH_TORCH_OBJECTS_H
#define COMPRESS_IO_PYTORCH_TORCH_OBJECTS_H

#include "io/pytorch/pickle_value.h"

/* A name in a module that pickles may use. */
typedef struct TorchName TorchName;

/* The name, or NULL when it is not supported. */
const TorchName *torch_name_find(TextSpan module, TextSpan name);

/* The name as "module.name", for messages. */
const char *torch_name_text(const TorchName *name);

/* Puts into `out` what `name` makes from a tuple of arguments: OrderedDict a dict,
 * _rebuild_tensor_v2 a tensor, _rebuild_parameter its tensor, Size a tuple, a scalar of
 * numpy's a number; of training checkpoints also argparse's Namespace a dict. Shapes and
 * strides of tensors are checked against their storages. Fails with STATUS_FORMAT at
 * byte `at`. */
Status torch_make(PickleValue *out, PickleSource *source, const TorchName *name,
                  const PickleValue *arguments, size_t at);

/* Puts into `out` an instance of a class, made from a tuple of arguments: a dict, which
 * BUILD will give its attributes. Fails with STATUS_FORMAT for all classes except plain
 * records. */
Status torch_instance(PickleValue *out, const PickleSource *source, const TorchName *name,
                      const PickleValue *arguments, size_t at);

/* Puts into `out` the storage that a persistent id describes: ("storage", class, key,
 * device, elements), and in files of the older form the view of it or None. It is
 * prepended to source->storages. Fails with STATUS_FORMAT. */
Status torch_storage(PickleValue *out, PickleSource *source, const PickleValue *id,
                     size_t at);

#endif
