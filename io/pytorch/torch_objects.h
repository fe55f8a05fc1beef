/* PyTorch's objects in pickles: the names that a pickle may say, and the plain values
 * that stand for what PyTorch would make of them. Nothing is called; a name that is not
 * listed is refused. Source: torch/_utils.py and torch/serialization.py of PyTorch 1.0
 * to 2.x. */
#ifndef COMPRESS_IO_PYTORCH_TORCH_OBJECTS_H
#define COMPRESS_IO_PYTORCH_TORCH_OBJECTS_H

#include "io/pytorch/pickle_value.h"

/* A name of a module that pickles may say. */
typedef struct TorchName TorchName;

/* The name, or NULL when it is none that is read. */
const TorchName *torch_name_find(TextSpan module, TextSpan name);

/* The name as "module.name", for messages. */
const char *torch_name_text(const TorchName *name);

/* Enters what `name` makes of a tuple of arguments in `out`: OrderedDict a dict,
 * _rebuild_tensor_v2 a tensor, _rebuild_parameter its tensor, Size a tuple, a scalar of
 * numpy's a number; of training checkpoints also argparse's Namespace a dict. Shapes and
 * strides of tensors are checked against their storages. Fails with STATUS_FORMAT at byte
 * `at`. */
Status torch_make(PickleValue *out, PickleSource *source, const TorchName *name,
                  const PickleValue *arguments, size_t at);

/* Enters an instance of a class, made of a tuple of arguments: a dict, which BUILD will
 * give its attributes. Fails with STATUS_FORMAT for all classes but plain records. */
Status torch_instance(PickleValue *out, const PickleSource *source, const TorchName *name,
                      const PickleValue *arguments, size_t at);

/* Enters the storage that a persistent id tells in `out`: ("storage", class, key, device,
 * elements), and in files of the form before zip the view of it or None. It is put in
 * front of source->storages. Fails with STATUS_FORMAT. */
Status torch_storage(PickleValue *out, PickleSource *source, const PickleValue *id,
                     size_t at);

#endif
