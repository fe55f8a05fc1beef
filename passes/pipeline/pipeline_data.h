/* Data sets against the model, before the first step runs. Private to the pipeline. */
#ifndef COMPRESS_PASSES_PIPELINE_PIPELINE_DATA_H
#define COMPRESS_PASSES_PIPELINE_PIPELINE_DATA_H

#include "passes/pipeline/pipeline.h"

/* Checks every data set that a step reads, once: labels against the classes of the
 * model's head, the longest sequence and all ids of tokens against its tables. So what is
 * wrong with the last step's data is said before the first step trains. Sets *index to
 * the step that reads the data set at fault. Fails with STATUS_MODEL, and as
 * options->data does. */
Status pipeline_check_data(int *index, Model *model, const Recipe *recipe,
                           const PipelineOptions *options, Diag *diag);

#endif
