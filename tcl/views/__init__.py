"""Figures and tables from plain data: plotly and pandas, no streamlit. The app, the notebooks and reports share them."""
