#ifndef PYLOG_C_THREAD_H
#define PYLOG_C_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Starts a detached thread that never runs Python, with all signals blocked. Returns 0 on failure. */
static int begin_c_thread(void *(*run)(void *), void *argument) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int error;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return !error;
}

#endif
