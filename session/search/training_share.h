/* Shorter training: the same steps of a recipe with a share of their optimiser steps,
 * for trials that only compare recipes. */
#ifndef COMPRESS_SESSION_SEARCH_TRAINING_SHARE_H
#define COMPRESS_SESSION_SEARCH_TRAINING_SHARE_H

#include "session/session.h"

/* Optimiser steps of all training steps of a session's recipe, by its data sets, which
 * must be open. 0 = nothing trains. */
int64_t training_steps(const Session *session);

/* Puts `steps` into every training step of the list `passes`, also within `repeat`:
 * `share` (0 to 1) of what it would take, at least 1. The data sets are those of the
 * session. A step whose length is itself a range over rounds is not changed. */
void training_shorten(const Session *session, Arena *arena, Tree *passes, double share);

#endif
