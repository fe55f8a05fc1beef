/* Work: what running a plan takes from a processor and from memory, to predict times. */
#ifndef COMPRESS_EXEC_PLAN_PLAN_WORK_H
#define COMPRESS_EXEC_PLAN_PLAN_WORK_H

#include "exec/plan/plan.h"

/* Products whose sums, or rows of results, are shorter than this run at a lower rate than
 * others: the first and last columns of their blocks weigh more. */
enum { WORK_NARROW = 192 };

/* Of a forward run, and of the backward run if the plan has a loss. FLOPs count a
 * multiply-add as 2. */
typedef struct PlanWork {
    double wide;    /* FLOPs of projections in float */
    double narrow;  /* the same of narrow ones, and of attention and all other products */
    double rounded; /* of projections whose operands are rounded to bfloat16 */
    double bytes;   /* bytes that ops without products read and write */
} PlanWork;

/* Adds up the work of a plan. The backward run of a product takes the product again for
 * each operand with a gradient, that of attention half more; other ops read the gradient
 * and a value, and write a gradient, for each operand that has one. */
PlanWork plan_work(const Plan *plan);

/* `work` done `times` times. */
PlanWork plan_work_times(PlanWork work, double times);

/* FLOPs of all products. */
double plan_work_flops(const PlanWork *work);

#endif
