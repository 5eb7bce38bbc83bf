"""An exact method for problems of fixed sizes."""
