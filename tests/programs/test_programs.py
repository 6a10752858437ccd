"""Some hundred calls of a random program; `python -m tests.programs` makes as many as are asked for."""

from tests.programs.run import Program
from tests.scratch import memory_folder


def test_a_program_of_several_processes_does_what_the_model_does():
    with memory_folder() as folder:
        program = Program(f"{folder}/store", seed=11)
        try:
            program.run(600)
        finally:
            program.close()
        assert len(program.made) > 15
