/* A solver of the heat equation whose conductivity is unknown to the network that watches it: while the
 * solver runs, the network learns the change of each cell from the cell and its neighbours. The solver's
 * restart file and the checkpoint are written at the same time step, and a restarted run continues bit for
 * bit.
 *
 *   heat_c FOLDER STEPS [KILL_AT]     KILL_AT: abort there, as a crashed job would */
#include <kindling_c.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS = 64, SAVE_EVERY = 50, EPOCH = 500 };

typedef struct solver {
  double u[CELLS + 2]; /* with a boundary cell on each side */
  double change[CELLS];
  int64_t step;
} solver;

static void check(kindling_status status) {
  if (status == KINDLING_OK) return;
  fprintf(stderr, "heat_c: %s\n", kindling_error());
  exit(1);
}

static void start(solver* s) {
  memset(s, 0, sizeof(*s));
  for (int i = 0; i < CELLS + 2; ++i) s->u[i] = sin(3.0 * i / CELLS) + 0.5 * sin(23.0 * i / CELLS);
}

/* A pulsating source keeps the field from becoming smooth, so that there is something to learn. */
static void compute_change(solver* s) {
  for (int i = 1; i <= CELLS; ++i) {
    const double conductivity = 0.2 + 0.1 * s->u[i] * s->u[i];
    s->change[i - 1] = conductivity * (s->u[i - 1] - 2 * s->u[i] + s->u[i + 1]);
  }
}

static void advance(solver* s) {
  for (int i = 1; i <= CELLS; ++i) {
    const double source = 0.05 * sin(0.7 * i + 0.05 * (double)s->step);
    s->u[i] += s->change[i - 1] + source;
  }
  ++s->step;
}

static void write_restart(const solver* s, const char* path) {
  char temporary[600];
  snprintf(temporary, sizeof(temporary), "%s.part", path);
  FILE* file = fopen(temporary, "wb");
  if (file == NULL || fwrite(s, sizeof(*s), 1, file) != 1 || fclose(file) != 0 ||
      rename(temporary, path) != 0) {
    perror(path);
    exit(1);
  }
}

static int read_restart(solver* s, const char* path) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) return 0;
  const int is_whole = fread(s, sizeof(*s), 1, file) == 1;
  fclose(file);
  return is_whole;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: heat_c FOLDER STEPS [KILL_AT]\n");
    return 2;
  }
  const int64_t steps = atoll(argv[2]), kill_at = argc > 3 ? atoll(argv[3]) : -1;
  char restart[512];
  snprintf(restart, sizeof(restart), "%s/solver.bin", argv[1]);

  const char* settings[] = {"seed=1",
                            "model.name=\"mlp_regressor\"",
                            "model.hidden=[32, 32]",
                            "model.activation=\"tanh\"",
                            "optimizer.name=\"adam\"",
                            "optimizer.lr=0.003",
                            "trainer.precision=\"64-true\"",
                            "trainer.num_threads=1"};
  kindling_trainer trainer;
  check(kindling_trainer_create(settings, sizeof(settings) / sizeof(*settings), NULL, &trainer));

  /* The restart file names the checkpoint of its step, so that the two are never of different steps. */
  solver s;
  char checkpoint[600];
  if (read_restart(&s, restart)) {
    snprintf(checkpoint, sizeof(checkpoint), "%s/network-%lld.safetensors", argv[1], (long long)s.step);
    check(kindling_resume(trainer, checkpoint));
    printf("restarted at step %lld\n", (long long)s.step);
  } else {
    start(&s);
  }

  /* The cells are samples: sample i has the three numbers from u[i] on. Both strides are 1, nothing is
   * copied. */
  const int64_t shape[] = {CELLS, 3}, strides[] = {1, 1}, change_shape[] = {CELLS, 1};
  const kindling_array neighbours = {s.u, shape, strides, 2, KINDLING_FLOAT64, KINDLING_CPU, 0};
  const kindling_array change = {s.change, change_shape, NULL, 2, KINDLING_FLOAT64, KINDLING_CPU, 0};

  while (s.step < steps) {
    compute_change(&s);
    check(kindling_train_step(trainer, &neighbours, 1, &change, 1));
    advance(&s);
    if (s.step % EPOCH ==
        0) { /* moves the losses of these steps out of the log, which would otherwise grow */
      double loss;
      check(kindling_finish_epoch(trainer));
      check(kindling_metric(trainer, "train_loss", &loss));
      printf("step %5lld: loss %.17g\n", (long long)s.step, loss);
    }
    if (s.step % SAVE_EVERY == 0) {
      snprintf(checkpoint, sizeof(checkpoint), "%s/network-%lld.safetensors", argv[1], (long long)s.step);
      check(kindling_save(trainer, checkpoint));
      write_restart(&s, restart);
      snprintf(checkpoint, sizeof(checkpoint), "%s/network-%lld.safetensors", argv[1],
               (long long)s.step - SAVE_EVERY);
      remove(checkpoint);
    }
    if (s.step == kill_at) abort();
  }

  /* The network in place of the conductivity. */
  double learned[CELLS], error = 0, size = 0;
  const kindling_array output = {learned, change_shape, NULL, 2, KINDLING_FLOAT64, KINDLING_CPU, 0};
  compute_change(&s);
  check(kindling_infer(trainer, &neighbours, 1, &output, 1));
  for (int i = 0; i < CELLS; ++i) {
    error += pow(learned[i] - s.change[i], 2);
    size += pow(s.change[i], 2);
  }
  printf("relative error of the change: %.17g\n", sqrt(error / size));
  check(kindling_trainer_free(trainer));
  return 0;
}
