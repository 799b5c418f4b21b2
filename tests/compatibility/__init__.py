"""What earlier versions wrote must be read, resumed and named as before."""
