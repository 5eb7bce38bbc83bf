"""The intermediate representation: functions of blocks of instructions.  Nothing here imports TVM."""
