// SPDX-License-Identifier: GPL-2.0-only
/*
 * Three OpenMP programs of the kinds that the NAS Parallel Benchmarks have, written anew:
 *
 *	kernels ep|cg|mg [ROUNDS]
 *
 *	ep	random pairs, counted by how far from the origin they are; threads meet once a round
 *	cg	conjugate gradients on a random sparse matrix: indirect reads, five meetings in each of 25 steps
 *	mg	a multigrid V-cycle on a cube: sweeps of 34 to 4 points a side, each a region of its own
 *
 * Threads, schedules and company are as with any OpenMP program: nothing is asked for. Prints threads of
 * the last region, time and a checksum, which does not depend on the number of threads but for
 * rounding. It knows nothing of scx_hetero.
 */
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int threads;

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

/* --- Random pairs --------------------------------------------------------------------- */

#define BLOCKS 512
#define PAIRS 256

static double ep(unsigned round)
{
	double sum = 0;
	long count[10] = { 0 };

#pragma omp parallel for schedule(static) reduction(+ : sum, count[:10])
	for (int block = 0; block < BLOCKS; block++) {
		uint64_t state = mix((uint64_t)round * BLOCKS + block + 1);

		for (int i = 0; i < PAIRS; i++) {
			double x, y, t;

			state = state * 6364136223846793005ull + 1442695040888963407ull;
			x = (double)(state >> 33) / (1ull << 30) - 1;
			state = state * 6364136223846793005ull + 1442695040888963407ull;
			y = (double)(state >> 33) / (1ull << 30) - 1;
			t = x * x + y * y;
			if (t <= 1 && t > 0) {
				t = sqrt(-2 * log(t) / t);
				x = fabs(x * t);
				y = fabs(y * t);
				sum += x + y;
				count[(int)(x > y ? x : y) % 10]++;
			}
		}
	}
	for (int i = 0; i < 10; i++)
		sum += (double)count[i] * i;
	return sum;
}

/* --- Conjugate gradients -------------------------------------------------------------- */

#ifndef ROWS
#define ROWS 3000
#endif
#define IN_ROW 24
#define STEPS 25

static int column[ROWS][IN_ROW];
static double value[ROWS][IN_ROW], cg_x[ROWS], cg_r[ROWS], cg_p[ROWS], cg_q[ROWS], cg_z[ROWS];

static void cg_matrix(void)
{
	for (int row = 0; row < ROWS; row++)
		for (int i = 0; i < IN_ROW; i++) {
			column[row][i] = i ? (int)(mix((uint64_t)row * IN_ROW + i) % ROWS) : row;
			value[row][i] = i ? 1.0 / (1 + (column[row][i] + row) % 97) / IN_ROW : 2;
		}
}

static double cg(unsigned round)
{
	double rho = 0, alpha = 0, beta = 0, d = 0, rho_old = 0;

#pragma omp parallel
	{
#pragma omp for schedule(static) reduction(+ : rho)
		for (int j = 0; j < ROWS; j++) {
			cg_x[j] = 1 + (double)((j + round) % 7) / 7;
			cg_q[j] = cg_z[j] = 0;
			cg_r[j] = cg_p[j] = cg_x[j];
			rho += cg_r[j] * cg_r[j];
		}
		for (int step = 0; step < STEPS; step++) {
#pragma omp single
			{
				d = 0;
				rho_old = rho;
				rho = 0;
			}
#pragma omp for schedule(static) reduction(+ : d)
			for (int j = 0; j < ROWS; j++) {
				double sum = 0;

				for (int k = 0; k < IN_ROW; k++)
					sum += value[j][k] * cg_p[column[j][k]];
				cg_q[j] = sum;
				d += cg_p[j] * sum;
			}
#pragma omp single
			alpha = rho_old / d;
#pragma omp for schedule(static) reduction(+ : rho)
			for (int j = 0; j < ROWS; j++) {
				cg_z[j] += alpha * cg_p[j];
				cg_r[j] -= alpha * cg_q[j];
				rho += cg_r[j] * cg_r[j];
			}
#pragma omp single
			beta = rho / rho_old;
#pragma omp for schedule(static)
			for (int j = 0; j < ROWS; j++)
				cg_p[j] = cg_r[j] + beta * cg_p[j];
		}
#pragma omp single
		threads = omp_get_num_threads();
	}
	for (int j = 0; j < ROWS; j++)
		d += cg_z[j];
	return d;
}

/* --- Multigrid ------------------------------------------------------------------------ */

#define LEVELS 4
#define SIDE(level) ((32 >> (level)) + 2)

typedef double plane[34][34];
static plane mg_u[LEVELS][34], mg_r[LEVELS][34], mg_f[34];

static void smooth(int level, const plane *f)
{
	const int side = SIDE(level);
	plane *u = mg_u[level], *r = mg_r[level];

#pragma omp parallel for schedule(static)
	for (int i = 1; i < side - 1; i++)
		for (int j = 1; j < side - 1; j++)
			for (int k = 1; k < side - 1; k++)
				r[i][j][k] = f[i][j][k] - 6 * u[i][j][k] + u[i - 1][j][k] + u[i + 1][j][k] +
					     u[i][j - 1][k] + u[i][j + 1][k] + u[i][j][k - 1] +
					     u[i][j][k + 1];
#pragma omp parallel for schedule(static)
	for (int i = 1; i < side - 1; i++)
		for (int j = 1; j < side - 1; j++)
			for (int k = 1; k < side - 1; k++)
				u[i][j][k] += 0.14 * r[i][j][k];
}

static void restrict_to(int level)
{
	const int side = SIDE(level);
	plane *fine = mg_r[level - 1], *coarse = mg_r[level], *u = mg_u[level];

#pragma omp parallel for schedule(static)
	for (int i = 1; i < side - 1; i++)
		for (int j = 1; j < side - 1; j++)
			for (int k = 1; k < side - 1; k++) {
				double sum = 0;

				for (int n = 0; n < 8; n++)
					sum += fine[2 * i - (n & 1)][2 * j - (n >> 1 & 1)][2 * k - (n >> 2)];
				coarse[i][j][k] = sum / 2;
				u[i][j][k] = 0;
			}
}

static void prolong(int level)
{
	const int side = SIDE(level - 1);
	plane *fine = mg_u[level - 1], *coarse = mg_u[level];

#pragma omp parallel for schedule(static)
	for (int i = 1; i < side - 1; i++)
		for (int j = 1; j < side - 1; j++)
			for (int k = 1; k < side - 1; k++)
				fine[i][j][k] += coarse[(i + 1) / 2][(j + 1) / 2][(k + 1) / 2] / 2;
}

static double mg(unsigned round)
{
	static plane f[LEVELS][34];
	double sum = 0;

	if (!round)
		for (int i = 0; i < 20; i++) {
			uint64_t at = mix(i + 1);

			mg_f[at % 32 + 1][(at >> 8) % 32 + 1][(at >> 16) % 32 + 1] = i & 1 ? 1 : -1;
		}
	smooth(0, mg_f);
	for (int level = 1; level < LEVELS; level++) {
		restrict_to(level);
		memcpy(f[level], mg_r[level], sizeof(f[level]));
		smooth(level, f[level]);
	}
	for (int level = LEVELS - 1; level > 0; level--) {
		prolong(level);
		smooth(level - 1, level > 1 ? f[level - 1] : mg_f);
	}
	for (int i = 1; i < 33; i++)
		sum += mg_u[0][i][i][i];
	return sum;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	unsigned rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 20;
	double (*run)(unsigned) = !strcmp(name, "ep") ? ep : !strcmp(name, "cg") ? cg :
				  !strcmp(name, "mg") ? mg : NULL;
	double sum = 0, began;

	if (!run) {
		fprintf(stderr, "kernels ep|cg|mg [ROUNDS]\n");
		return 2;
	}
	if (run == cg)
		cg_matrix();
	began = omp_get_wtime();
	for (unsigned round = 0; round < rounds; round++)
		sum += run(round);
	if (run != cg) {
#pragma omp parallel
#pragma omp single
		threads = omp_get_num_threads();
	}
	printf("%s %u rounds, %d threads, %.4f s, %.9g\n", name, rounds, threads, omp_get_wtime() - began,
	       sum);
	return 0;
}
